/** SVG paths of icons of 20 by 20 units. */

export const ARROW = "M10 16V4.5M5 9l5-5 5 5";
export const CLIP =
  "M16 9.2l-6 6a3.6 3.6 0 0 1-5.1-5.1l6.6-6.6a2.4 2.4 0 0 1 3.4 3.4l-6.6 6.6a1.2 1.2 0 0 1-1.7-1.7l5.6-5.6";
export const PAPER = "M5 2.5h6.5L15.5 6.5v11H5zM11 2.5V7h4.5";
export const PIPELINE = "M2.5 10h4M13.5 10h4M6.5 6.5h7v7h-7z";
export const PLUS = "M10 4v12M4 10h12";
export const STACK = "M10 3l7 3.5-7 3.5-7-3.5zM3 10l7 3.5 7-3.5M3 13.5L10 17l7-3.5";
