/** Accepts files that are dropped anywhere on the page. */

/**
 * @param {() => boolean} takes whether files are accepted now
 * @param {(files: File[], on: EventTarget | null) => void} add
 * @param {AbortSignal} [signal] removes the listeners
 */
export function dropping(takes, add, signal) {
  const carries = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") && takes();
  const mark = (/** @type {boolean} */ on) => document.body.classList.toggle("dropping", on);
  const options = { signal };
  addEventListener("dragover", (event) => carries(event) && (event.preventDefault(), mark(true)), options);
  addEventListener("dragleave", (event) => !event.relatedTarget && mark(false), options);
  addEventListener(
    "drop",
    (event) => {
      mark(false);
      if (!carries(event)) return;
      event.preventDefault();
      add([...(event.dataTransfer?.files || [])], event.target);
    },
    options,
  );
}
