// Text from files and requests, made safe to show: quoted, cut, and with every character escaped that could move a
// terminal's cursor, reorder a line or hide.

/** Longest text shown in a message, in characters. */
const MAX_SHOWN_CHARACTERS = 80;

/** C1 controls, DEL, zero-width and direction marks; JSON has already escaped the C0 controls and lone surrogates. */
const UNPRINTABLE = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** `text` in double quotes, at most `maxCharacters` of it, escaped as in JSON. */
export function quotedText(text: string, maxCharacters = MAX_SHOWN_CHARACTERS): string {
  const shown = text.length > maxCharacters ? `${text.slice(0, maxCharacters)}…` : text;
  return JSON.stringify(shown).replace(
    UNPRINTABLE,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
