/** Example requests; their files are part of the page. */

/** @typedef {{request: string, file?: string, type?: string}} Sample */

/** @type {Sample[]} */
export const SAMPLES = [
  {
    request: "Read the text in this image aloud and tell me whether it sounds happy",
    file: "sign.png",
    type: "image/png",
  },
  { request: "What is the total on this invoice, and when is it due?", file: "invoice.png", type: "image/png" },
  {
    request: "How many people are in this photo? Also make a pencil sketch of it",
    file: "face.jpg",
    type: "image/jpeg",
  },
  { request: "Summarize this letter and find all names and dates", file: "letter.pdf", type: "application/pdf" },
  { request: "Does this sound happy? “We won the contract, and everybody in the team is delighted.”" },
];

/** @param {Sample} sample */
export function sampleAddress(sample) {
  return new URL(sample.file || "", import.meta.url).href;
}

/**
 * @param {Sample} sample
 * @returns {Promise<File[]>}
 */
export async function sampleFiles(sample) {
  if (!sample.file) return [];
  const response = await fetch(sampleAddress(sample));
  return [new File([await response.blob()], sample.file, { type: sample.type })];
}
