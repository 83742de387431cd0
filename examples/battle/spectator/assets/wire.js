// The game's bytes, decoded: batches, snapshots and events. Pure functions; every one throws a WireError on anything it
// does not know, before it allocates more than the input could hold.

import { Reader, WireError, parts } from "../relay/messages.js";

export { WireError };

const limits = { owner: 47, number: 2 ** 32 - 1 };
const maxNumber = Number.MAX_SAFE_INTEGER;

/** How many bytes of a batch's payload each area takes, as [area, bytes]. */
export function measure(payload) {
  return Array.from(parts(payload, "batch"), ([area, { left }]) => [area, left + (left < 128 ? 2 : 3)]);
}

export const Spawned = 1, Moved = 2, Fired = 3, Shielded = 4, Warped = 5, Returned = 6, Left = 7, Entered = 8, Scored = 9, Paced = 10, Departed = 11, Sunk = 12;

/** One event of the game; the table is in the documentation of game.Event. */
export function decodeEvent(bytes) {
  const r = new Reader(bytes, "event");
  const e = { kind: r.u8(), ship: r.varint(limits.number) };
  switch (e.kind) {
    case Spawned: case Entered:
      e.cell = r.u16(); e.hull = r.u8(); e.shield = r.u8(); e.score = r.varint(limits.number); Object.assign(e, name(r));
      break;
    case Moved: case Warped:
      e.cell = r.u16();
      break;
    case Fired:
      e.area = r.u8(); e.target = r.varint(limits.number); e.hull = r.u8(); e.shield = r.u8(); e.wait = r.u8();
      break;
    case Shielded:
      e.area = r.u8(); e.shield = r.u8();
      break;
    case Returned:
      e.cell = r.u16(); e.hull = r.u8(); e.shield = r.u8();
      break;
    case Left: case Scored:
      e.area = r.u8();
      break;
    case Departed:
      e.area = r.u8(); e.to = tileID(r);
      break;
    case Sunk:
      e.area = r.u8(); Object.assign(e, name(r));
      if (e.ship !== 0) r.fail("what has sunk has a number");
      break;
    case Paced:
      e.pace = r.u8() / 4;
      if (e.ship !== 0 || e.pace < 1) r.fail("a pace that cannot be");
      break;
    default:
      r.fail("unknown kind");
  }
  r.end();
  return e;
}

// The name is kept as bytes: a snapshot encoded from it must be the owner's to the byte, and a name need
// not be text.
function ownerName(r) {
  const n = r.u8();
  if (n < 1 || n > limits.owner) r.fail("owner's name is empty or too long");
  return r.take(n).slice();
}

function tileID(r) { return Array.from(r.take(8), (b) => b.toString(16).padStart(2, "0")).join("").replace(/^0+/, ""); }

// What a ship is called in the world, and how often it has left a tile. One that has left none is at home.
function name(r) {
  const hop = r.varint(limits.number);
  return { hop, home: hop > 0 ? tileID(r) : "", owner: ownerName(r) };
}

const text = new TextDecoder();

/** game.Ship.Name of a ship in a tile. */
export const shipName = (ship, tile) => `${text.decode(ship.owner)}@${ship.home || tile}`;

// A list of names, with its length before it.
function owners(r) {
  const names = [];
  for (let n = r.varint(limits.number); n > 0; n--) names.push(ownerName(r));
  return names;
}

/** The ships of some areas of a game snapshot (game.Rules.Snapshot) as [area, ships, born, sunk], each area's ships in the order of
 *  their numbers; born and sunk are owners. */
export function* decodeGame(bytes, areas) {
  for (const [area, r] of parts(bytes, "game snapshot")) {
    if (!areas.includes(area)) continue; // the last part is of fleets
    if (r.u8() !== 4) r.fail("unknown version");
    const born = owners(r), sunk = owners(r), ships = [];
    for (let last = 0; r.left;) {
      const ship = {
        id: r.varint(limits.number), cell: r.u16(), hull: r.u8(), shield: r.u8(), score: r.varint(limits.number),
        back: r.varint(maxNumber), ...name(r),
      };
      if (ship.id <= last || (ship.hull > 0) === (ship.back > 0)) r.fail(`ship ${ship.id} cannot be`);
      last = ship.id;
      ships.push(ship);
    }
    yield [area, ships, born, sunk];
  }
}

/** The canonical snapshot of areas, [area, ships, born, sunk] ascending: what the digest is taken of. */
export function encodeGame(areas) {
  const out = [];
  for (const [area, ships, born, sunk] of areas) {
    if (ships.length + born.length + sunk.length === 0) continue;
    const part = [4];
    for (const names of [born, sunk]) {
      varint(part, names.length);
      for (const name of names) part.push(name.length, ...name);
    }
    for (const s of ships) {
      varint(part, s.id);
      part.push(s.cell >> 8, s.cell & 255, s.hull, s.shield);
      varint(part, s.score);
      varint(part, s.back);
      varint(part, s.hop);
      if (s.hop > 0) for (const pair of s.home.padStart(16, "0").match(/../g)) part.push(parseInt(pair, 16));
      part.push(s.owner.length, ...s.owner);
    }
    out.push(area);
    varint(out, part.length);
    for (const b of part) out.push(b);
  }
  return Uint8Array.from(out);
}

function varint(out, n) {
  for (; n >= 128; n = Math.floor(n / 128)) out.push((n % 128) | 128);
  out.push(n);
}
