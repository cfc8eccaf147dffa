/** Light or dark theme: the system's, unless the user has chosen one. */

const DARK = matchMedia("(prefers-color-scheme: dark)");

/** @returns {boolean} */
function dark() {
  const chosen = document.documentElement.dataset.shade;
  return chosen ? chosen === "dark" : DARK.matches;
}

/** @param {HTMLButtonElement} button that switches between the two */
export function themed(button) {
  const tell = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.shade = next;
    localStorage.setItem("shade", next);
    tell();
  });
  DARK.addEventListener("change", tell);
  tell();
}
