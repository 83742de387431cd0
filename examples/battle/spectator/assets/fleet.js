// One tile's ships as this page has folded them: the same fold as game.View, in the browser.

import { decodeBatch, decodeEvent, decodeGame, encodeGame, WireError } from "./wire.js";
import { Spawned, Moved, Fired, Shielded, Warped, Returned } from "./wire.js";

export class Fleet {
  constructor(cells) {
    this.cells = cells;
    this.ships = []; // ship n is at n-1
    this.taken = new Map(); // cell → ship in play
  }

  /** Starts over from a snapshot; an empty one is a new tile. Throws, changing nothing, if unreadable. */
  restore(blob) {
    const ships = blob.length === 0 ? [] : decodeGame(blob, this.cells);
    const taken = new Map();
    for (const s of ships) {
      if (s.hull === 0) continue;
      if (taken.has(s.cell)) throw new WireError("two ships on one cell");
      taken.set(s.cell, s);
    }
    this.ships = ships;
    this.taken = taken;
  }

  /**
   * Folds one batch and returns its events, each with what was before: `ship`, and for Fired `target`, are
   * the ships themselves, `from` the cell left. Throws when the batch does not fit: restore then.
   */
  apply(tick, payload) {
    return decodeBatch(payload).map((bytes) => this.#fold(tick, decodeEvent(bytes)));
  }

  #fold(tick, e) {
    if (e.kind === Spawned) return this.#spawn(e);
    const ship = this.#find(e.ship);
    const done = { ...e, ship, from: ship.cell };
    switch (e.kind) {
      case Moved: case Warped:
        if (ship.hull === 0) throw new WireError("a destroyed ship moves");
        this.#settle(ship, e.cell);
        break;
      case Returned:
        if (ship.hull > 0 || e.hull === 0) throw new WireError("a ship returns that never left");
        this.#settle(ship, e.cell);
        Object.assign(ship, { hull: e.hull, shield: e.shield, back: 0 });
        break;
      case Shielded:
        if (ship.hull === 0) throw new WireError("a destroyed ship is shielded");
        ship.shield = e.shield;
        break;
      case Fired:
        done.target = this.#find(e.target);
        this.#hit(tick, ship, done.target, e);
        break;
    }
    return done;
  }

  #find(id) {
    const ship = this.ships[id - 1];
    if (!ship) throw new WireError(`there is no ship ${id}`);
    return ship;
  }

  #free(cell) {
    if (cell >= this.cells || this.taken.has(cell)) throw new WireError(`cell ${cell} is not free`);
  }

  #spawn(e) {
    if (e.ship !== this.ships.length + 1) throw new WireError("a ship spawns out of turn");
    this.#free(e.cell);
    const ship = { id: e.ship, cell: e.cell, hull: e.hull, shield: e.shield, score: 0, back: 0, owner: e.owner };
    this.ships.push(ship);
    this.taken.set(e.cell, ship);
    return { ...e, ship, from: e.cell };
  }

  #settle(ship, cell) {
    this.#free(cell);
    if (ship.hull > 0) this.taken.delete(ship.cell);
    ship.cell = cell;
    this.taken.set(cell, ship);
  }

  #hit(tick, attacker, target, e) {
    if (target.hull === 0 || target === attacker || (e.hull === 0) !== e.wait > 0) throw new WireError("a volley that cannot be");
    target.hull = e.hull;
    target.shield = e.shield;
    if (e.hull === 0) {
      this.taken.delete(target.cell);
      target.back = tick + e.wait;
      attacker.score++;
    }
  }

  /** The canonical snapshot, of which digest takes the SHA-256. */
  encode() { return encodeGame(this.ships, this.cells); }
}

/** SHA-256 of a canonical snapshot in hexadecimal: game.Digest. Null where the browser has no crypto. */
export async function digest(snapshot) {
  if (!globalThis.crypto?.subtle) return null; // not a secure context: plain http from another machine
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", snapshot));
  return Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
}
