/** Announcements for screen readers; messages of a short interval are joined so that none is lost. */

const INTERVAL = 250;

export class Announcer {
  /** @param {HTMLElement} place that screen readers watch */
  constructor(place) {
    this._place = place;
    /** @type {string[]} */
    this._words = [];
    this._timer = 0;
  }

  /** @param {string} text */
  say(text) {
    this._words.push(text);
    this._timer ||= setTimeout(() => this._speak(), INTERVAL);
  }

  _speak() {
    this._timer = 0;
    this._place.textContent = this._words.splice(0).join(" ");
  }
}
