// One tile's ships as this page has folded them: the same fold as game.View, in the browser.

import { events } from "../relay/client.js";
import { decodeEvent, decodeGame, encodeGame, shipName, WireError } from "./wire.js";
import { Spawned, Moved, Fired, Shielded, Warped, Returned, Left, Entered, Scored, Paced, Departed, Sunk } from "./wire.js";

/** The ships of an area by their numbers, with the owners of those that have spawned, and have sunk, there. */
const shipsOf = (ships = [], born = [], sunk = []) => Object.assign(new Map(ships.map((s) => [s.id, s])), { born, sunk });

export class Fleet {
  /**
   * spans has the first cell of each area, from area 1, and in the end the number of cells. crossings take note of the
   * ships that come to the tile of that ID, and leave it.
   */
  constructor(spans, id = "", crossings = null) {
    this.id = id;
    this.crossings = crossings;
    this.all = spans.slice(1).map((_, i) => i + 1); // the tile's areas
    this.areaOf = new Uint8Array(spans.at(-1));
    for (const area of this.all) this.areaOf.fill(area, spans[area - 1], spans[area]);
    this.areas = new Map(this.all.map((area) => [area, shipsOf()])); // area that is held → ship number → ship
    this.taken = new Map(); // cell → ship in play
    this.pace = 1; // how many tick intervals a tick lasts, as far as was told
  }

  /** Starts over from a snapshot, and holds some areas, or all. Throws, changing nothing, if unreadable. */
  restore(blob, areas = this.all) {
    this.#take(blob, areas, new Map());
    const names = new Set(this.ships.map((s) => s.name));
    this.crossings?.restore(this.id, (name) => names.has(name));
    this.#note();
  }

  /** Adds areas to those that are held, as a snapshot has them. Throws, changing nothing, if unreadable. */
  open(blob, areas) {
    this.#take(blob, areas, this.areas);
    this.#note();
  }

  #note() { for (const s of this.ships) this.crossings?.enter(this.id, s.name, s.hop, s); }

  /** Forgets all areas but these. */
  keep(areas) {
    this.areas = new Map([...this.areas].filter(([area]) => areas.includes(area)));
    this.#occupy(this.areas);
  }

  #take(blob, areas, held) {
    held = new Map(held);
    for (const area of areas) held.set(area, shipsOf());
    for (const [area, ships, born, sunk] of decodeGame(blob, areas)) {
      for (const s of ships) s.name = shipName(s, this.id);
      if (ships.some((s) => this.areaOf[s.cell] !== area)) throw new WireError("a ship in another area");
      held.set(area, shipsOf(ships, born, sunk));
    }
    this.#occupy(held);
    this.areas = held;
  }

  #occupy(areas) {
    const taken = new Map();
    for (const ships of areas.values()) {
      for (const s of ships.values()) {
        if (s.hull === 0) continue;
        if (taken.has(s.cell)) throw new WireError("two ships on one cell");
        taken.set(s.cell, s);
      }
    }
    this.taken = taken;
  }

  /** All ships that are held. */
  get ships() { return [...this.areas.values()].flatMap((ships) => [...ships.values()]); }

  /** The ship of a number, if an area that is held has it. */
  find(id) {
    for (const ships of this.areas.values()) if (ships.has(id)) return ships.get(id);
    return undefined;
  }

  /**
   * Folds one batch, of the areas that are held or of some of them, and returns its events, each with the ship that it is about as `ship`; for Fired that is the
   * attacker, undefined if it is in none of the areas held, and `target` the other one. Throws when the batch does not
   * fit: restore then.
   */
  apply(tick, payload, areas = null) {
    const here = ([area]) => area === 0 || (areas ? areas.includes(area) : this.areas.has(area));
    return events(payload).filter(here).map(([, bytes]) => this.#fold(tick, decodeEvent(bytes)));
  }

  /** Whether all areas of the tile are held. */
  get whole() { return this.areas.size === this.all.length; }

  #fold(tick, e) {
    if (e.kind === Paced) {
      this.pace = e.pace;
      return { kind: Paced }; // of no ship
    }
    const area = e.area ?? this.areaOf[e.cell], ships = this.areas.get(area);
    if (!ships) throw new WireError(`area ${area} is not held`);
    if (e.kind === Spawned || e.kind === Entered) return this.#enter(ships, e);
    if (e.kind === Sunk) {
      ships.sunk.push(e.owner);
      this.crossings?.end(shipName(e, this.id), e.hop);
      return { kind: Sunk };
    }
    const id = e.kind === Fired ? e.target : e.ship, ship = ships.get(id);
    if (!ship) throw new WireError(`there is no ship ${id} in area ${area}`);
    if ((ship.hull === 0) !== (e.kind === Returned) && e.kind !== Scored) throw new WireError(`ship ${id} is destroyed, or in play`);
    switch (e.kind) {
      case Moved: case Warped:
        this.#settle(ship, e.cell);
        break;
      case Returned:
        if (e.hull === 0) throw new WireError("a ship returns without hull");
        this.#settle(ship, e.cell);
        Object.assign(ship, { hull: e.hull, shield: e.shield, back: 0 });
        break;
      case Shielded:
        ship.shield = e.shield;
        break;
      case Fired:
        this.#hit(tick, ship, e);
        return { ...e, ship: this.find(e.ship), target: ship };
      case Departed:
        this.crossings?.leave(this.id, ship.name, ship.hop, e.to);
        // falls through
      case Left:
        ships.delete(id);
        this.taken.delete(ship.cell);
        break;
      case Scored:
        ship.score++;
        break;
    }
    return { ...e, ship };
  }

  #free(cell) {
    if (cell >= this.areaOf.length || this.taken.has(cell)) throw new WireError(`cell ${cell} is not free`);
  }

  #enter(ships, e) {
    if (ships.has(e.ship) || e.hull === 0) throw new WireError("a ship is here already, or comes destroyed");
    this.#free(e.cell);
    const ship = { id: e.ship, cell: e.cell, hull: e.hull, shield: e.shield, score: e.score, back: 0, hop: e.hop, home: e.home, owner: e.owner };
    ship.name = shipName(ship, this.id);
    ships.set(ship.id, ship);
    this.crossings?.enter(this.id, ship.name, ship.hop, ship);
    this.taken.set(e.cell, ship);
    if (e.kind === Spawned) ships.born.push(e.owner);
    return { ...e, ship };
  }

  #settle(ship, cell) {
    this.#free(cell);
    if (ship.hull > 0) this.taken.delete(ship.cell);
    ship.cell = cell;
    this.taken.set(cell, ship);
  }

  #hit(tick, target, e) {
    if (target.id === e.ship || (e.hull === 0) !== e.wait > 0) throw new WireError("a volley that cannot be");
    target.hull = e.hull;
    target.shield = e.shield;
    if (e.hull === 0) {
      this.taken.delete(target.cell);
      target.back = tick + e.wait;
    }
  }

  /** The canonical snapshot, of which digest takes the SHA-256. */
  encode() {
    const ascending = (ships) => [...ships.values()].sort((a, b) => a.id - b.id);
    return encodeGame([...this.areas].sort(([a], [b]) => a - b).map(([area, ships]) => [area, ascending(ships), ships.born, ships.sunk]));
  }
}

/** SHA-256 of a canonical snapshot in hexadecimal: game.Digest. Null where the browser has no crypto. */
export async function digest(snapshot) {
  if (!globalThis.crypto?.subtle) return null; // not a secure context: plain http from another machine
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", snapshot));
  return Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
}
