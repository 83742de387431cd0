// The game's bytes, decoded: batches, snapshots and events. Pure functions; every one throws a WireError on anything it
// does not know, before it allocates more than the input could hold.

import { Reader, WireError, parts } from "../relay/messages.js";

export { WireError };

const limits = { owner: 64, number: 2 ** 32 - 1 };
const maxNumber = Number.MAX_SAFE_INTEGER;

/** How many bytes of a batch's payload each area takes, as [area, bytes]. */
export function measure(payload) {
  return Array.from(parts(payload, "batch"), ([area, { left }]) => [area, left + (left < 128 ? 2 : 3)]);
}

export const Spawned = 1, Moved = 2, Fired = 3, Shielded = 4, Warped = 5, Returned = 6, Left = 7, Entered = 8, Scored = 9, Paced = 10;

/** One event of the game; the table is in the documentation of game.Event. */
export function decodeEvent(bytes) {
  const r = new Reader(bytes, "event");
  const e = { kind: r.u8(), ship: r.varint(limits.number) };
  switch (e.kind) {
    case Spawned: case Entered:
      e.cell = r.u16(); e.hull = r.u8(); e.shield = r.u8(); e.score = r.varint(limits.number); e.owner = ownerName(r);
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

/** The ships of a game snapshot (game.Rules.Snapshot) as [area, ships], each area's in the order of their numbers. */
export function* decodeGame(bytes) {
  for (const [area, r] of parts(bytes, "game snapshot")) {
    if (r.u8() !== 2) r.fail("unknown version");
    const ships = [];
    for (let last = 0; r.left;) {
      const ship = {
        id: r.varint(limits.number), cell: r.u16(), hull: r.u8(), shield: r.u8(), score: r.varint(limits.number),
        back: r.varint(maxNumber), owner: ownerName(r),
      };
      if (ship.id <= last || (ship.hull > 0) === (ship.back > 0)) r.fail(`ship ${ship.id} cannot be`);
      last = ship.id;
      ships.push(ship);
    }
    yield [area, ships];
  }
}

/** The canonical snapshot of areas, [area, ships] ascending: what the digest is taken of. */
export function encodeGame(areas) {
  const out = [];
  for (const [area, ships] of areas) {
    if (ships.length === 0) continue;
    const part = [2];
    for (const s of ships) {
      varint(part, s.id);
      part.push(s.cell >> 8, s.cell & 255, s.hull, s.shield);
      varint(part, s.score);
      varint(part, s.back);
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
