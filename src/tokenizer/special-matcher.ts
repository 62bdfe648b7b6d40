// Finds special tokens in text: leftmost first, the longest of those that start at the same place. A trie over code
// units, so that the time does not grow with the number of special tokens.

interface TrieNode {
  children: Map<number, TrieNode>;
  id: number | undefined;
}

/** Matcher for a fixed set of non-empty texts. */
export class SpecialMatcher {
  private readonly root: TrieNode = { children: new Map(), id: undefined };

  constructor(entries: Iterable<readonly [text: string, id: number]>) {
    for (const [text, id] of entries) {
      let node = this.root;
      for (let i = 0; i < text.length; i++) {
        const code = text.charCodeAt(i);
        let child = node.children.get(code);
        if (child === undefined) {
          child = { children: new Map(), id: undefined };
          node.children.set(code, child);
        }
        node = child;
      }
      node.id = id;
    }
  }

  /** First match at or after `from`: where it starts and ends (code units) and its id. */
  find(text: string, from: number): { start: number; end: number; id: number } | undefined {
    const { children: heads } = this.root;
    for (let start = from; start < text.length; start++) {
      let node = heads.get(text.charCodeAt(start));
      let best: { start: number; end: number; id: number } | undefined;
      for (let end = start + 1; node !== undefined; end++) {
        if (node.id !== undefined) best = { start, end, id: node.id };
        if (end >= text.length) break;
        node = node.children.get(text.charCodeAt(end));
      }
      if (best !== undefined) return best;
    }
    return undefined;
  }
}
