/** Formats durations, sizes, times and counts. */

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 1) return `${Math.max(0, seconds).toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  const power = Math.min(3, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${["", "KB", "MB", "GB"][power]}`;
}

/** @param {string} time RFC 3339 */
export function ago(time) {
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(time).toLocaleDateString();
}

/**
 * @param {number} count
 * @param {string} one
 */
export function plural(count, one) {
  return `${amount(count)} ${one}${count === 1 ? "" : "s"}`;
}

/**
 * @param {string} text
 * @param {number} most characters
 */
export function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/**
 * Shortens a file name in its middle, so that its extension stays.
 * @param {string} name
 * @param {number} most characters
 */
export function shortened(name, most) {
  if (name.length <= most) return name;
  const end = Math.floor((most - 1) / 3);
  return `${name.slice(0, most - 1 - end)}…${name.slice(-end)}`;
}

/** @param {number} count */
export function amount(count) {
  return count.toLocaleString("en");
}
