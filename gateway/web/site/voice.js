/** What is said to those who cannot see the page: all that happened within a moment at once, so none of it is lost. */

const MOMENT = 250;

export class Voice {
  /** @param {HTMLElement} place that screen readers watch */
  constructor(place) {
    this._place = place;
    this._words = [];
    this._timer = 0;
  }

  /** @param {string} words */
  say(words) {
    this._words.push(words);
    this._timer ||= setTimeout(() => this._speak(), MOMENT);
  }

  _speak() {
    this._timer = 0;
    this._place.textContent = this._words.splice(0).join(" ");
  }
}
