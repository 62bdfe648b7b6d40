// Keeps the end of a growing text in sight, unless the reader has gone elsewhere.

const NEAR_UNITS = 60;

/** @param {HTMLElement} log @param {HTMLElement} jump shown while the end is out of sight */
export function followEnd(log, jump) {
  let isFollowing = true;
  const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_UNITS;
  const toEnd = () => {
    log.scrollTop = log.scrollHeight;
  };
  log.addEventListener("scroll", () => {
    isFollowing = isAtEnd();
    jump.hidden = isFollowing;
  });
  jump.addEventListener("click", () => {
    toEnd();
    log.focus({ preventScroll: true });
  });
  new ResizeObserver(() => {
    if (isFollowing) toEnd();
  }).observe(log);
  return {
    /** The text has grown. */
    grown() {
      if (isFollowing) toEnd();
      else jump.hidden = isAtEnd();
    },
    /** Something new begins, which the reader asked for. */
    reset() {
      isFollowing = true;
      toEnd();
      jump.hidden = true;
    },
  };
}
