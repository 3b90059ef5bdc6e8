// Pauses before each further attempt to connect: twice as long each time up to a limit, and spread by half, so that a
// server that restarts is not met by all its pages at once. No page here.
export class Backoff {
  #first;
  #limit;
  #pause;
  #random;

  // `first` and `limit` in milliseconds; `random` returns numbers from 0 up to 1.
  constructor(first, limit, random = Math.random) {
    this.#first = this.#pause = first;
    this.#limit = limit;
    this.#random = random;
  }

  // Returns the milliseconds to wait before the next attempt.
  next() {
    const pause = this.#pause * (0.5 + this.#random() / 2);
    this.#pause = Math.min(this.#pause * 2, this.#limit);
    return pause;
  }

  // An attempt was a success.
  reset() {
    this.#pause = this.#first;
  }
}
