// Not a module: it runs before the first paint, so that a chosen theme never flashes.
{
  const chosen = localStorage.getItem("shade");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.shade = chosen;
}
