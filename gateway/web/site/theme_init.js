// Not a module: it applies the chosen theme before the first paint.
{
  const chosen = localStorage.getItem("shade");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.shade = chosen;
}
