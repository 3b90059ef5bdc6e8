// Which entries of a list are selected, and where the cursor is: what a click, Shift and the arrow keys do. No page here.
export class Selection {
  #keys;
  #selected = new Set();
  #anchor = 0; // where a range that Shift extends begins
  #cursor = 0;

  constructor(keys = []) {
    this.#keys = keys;
  }

  get selected() {
    return this.#keys.filter((key) => this.#selected.has(key));
  }

  get cursor() {
    return this.#keys[this.#cursor];
  }

  has(key) {
    return this.#selected.has(key);
  }

  // The list was drawn again: what is still there stays selected, and the cursor stays on its entry or near it.
  replaceKeys(keys) {
    const [cursor, anchor] = [this.#keys[this.#cursor], this.#keys[this.#anchor]];
    this.#keys = keys;
    this.#selected = new Set(this.selected);
    const last = Math.max(0, keys.length - 1);
    this.#cursor = keys.includes(cursor) ? keys.indexOf(cursor) : Math.min(this.#cursor, last);
    this.#anchor = keys.includes(anchor) ? keys.indexOf(anchor) : this.#cursor;
  }

  // Selects one entry alone.
  choose(key) {
    this.clear();
    this.place(key);
    this.#selected.add(key);
  }

  toggle(key) {
    this.place(key);
    if (!this.#selected.delete(key)) this.#selected.add(key);
  }

  // Selects everything from the anchor to `key`.
  extendTo(key) {
    const end = this.#keys.indexOf(key);
    if (end < 0) return;
    this.#cursor = end;
    const [from, to] = [Math.min(this.#anchor, end), Math.max(this.#anchor, end)];
    this.#selected = new Set(this.#keys.slice(from, to + 1));
  }

  // Moves the cursor by `step` entries and stops at both ends; with `extend`, the range grows along.
  move(step, { extend = false } = {}) {
    if (!this.#keys.length) return;
    const target = Math.min(this.#keys.length - 1, Math.max(0, this.#cursor + step));
    if (extend) this.extendTo(this.#keys[target]);
    else this.place(this.#keys[target]);
  }

  selectAll() {
    this.#selected = new Set(this.#keys);
  }

  clear() {
    this.#selected.clear();
  }

  // Puts cursor and anchor on an entry without selecting it.
  place(key) {
    const index = this.#keys.indexOf(key);
    if (index >= 0) this.#cursor = this.#anchor = index;
  }
}
