// What comes over the wire, decoded: the relay's JSON messages, batches, the game's snapshots and events.
// Pure functions over bytes; every one throws a WireError on anything it does not know, before it allocates
// more than the input could hold.

export class WireError extends Error {}

const limits = { event: 64 << 10, owner: 64 };
const maxNumber = Number.MAX_SAFE_INTEGER;

/** Reads big-endian fields and varints off a Uint8Array. */
class Reader {
  constructor(bytes, what) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.what = what;
  }
  get left() { return this.bytes.length - this.at; }
  fail(why) { throw new WireError(`malformed ${this.what}: ${why}`); }
  skip(n) {
    if (this.left < n) this.fail("cut short");
    this.at += n;
    return this.at - n;
  }
  u8() { return this.view.getUint8(this.skip(1)); }
  u16() { return this.view.getUint16(this.skip(2)); }
  u32() { return this.view.getUint32(this.skip(4)); }
  u64() {
    const at = this.skip(8);
    const v = this.view.getUint32(at) * 2 ** 32 + this.view.getUint32(at + 4);
    if (v > maxNumber) this.fail("number over 2^53-1");
    return v;
  }
  varint(limit) {
    let v = 0;
    for (let scale = 1; scale < 2 ** 56; scale *= 128) {
      const b = this.u8();
      v += (b & 127) * scale;
      if (b < 128) {
        if (v > limit || (b === 0 && scale > 1)) this.fail("number out of range");
        return v;
      }
    }
    return this.fail("oversized number");
  }
  take(n) {
    const at = this.skip(n);
    return this.bytes.subarray(at, at + n);
  }
  end() { if (this.left) this.fail(`${this.left} bytes after the end`); }
}

/** The events, as bytes, of a batch's payload: areas of the tile, ascending, none of them empty. */
export function decodeBatch(payload) {
  const r = new Reader(payload, "batch"), events = [];
  for (let last = -1; r.left;) {
    const area = r.u8();
    const inside = new Reader(r.take(r.varint(maxNumber)), "batch");
    if (area <= last || !inside.left) r.fail("areas out of order, or an empty one");
    while (inside.left) events.push(inside.take(inside.varint(limits.event)));
    last = area;
  }
  return events;
}

export const Spawned = 1, Moved = 2, Fired = 3, Shielded = 4, Warped = 5, Returned = 6;

/** One event of the game; the table is in the documentation of game.Event. */
export function decodeEvent(bytes) {
  const r = new Reader(bytes, "event");
  const e = { kind: r.u8(), ship: r.u32() };
  switch (e.kind) {
    case Spawned:
      e.cell = r.u16(); e.hull = r.u8(); e.shield = r.u8(); e.owner = ownerName(r);
      break;
    case Moved: case Warped:
      e.cell = r.u16();
      break;
    case Fired:
      e.target = r.u32(); e.hull = r.u8(); e.shield = r.u8(); e.wait = r.u8();
      break;
    case Shielded:
      e.shield = r.u8();
      break;
    case Returned:
      e.cell = r.u16(); e.hull = r.u8(); e.shield = r.u8();
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

/** The ships of a game snapshot (game.Rules.Snapshot), in the order of their numbers. */
export function decodeGame(bytes, cells) {
  const r = new Reader(bytes, "game snapshot");
  if (r.u8() !== 1) r.fail("unknown version");
  if (r.u16() !== cells) r.fail("written for another ground");
  const n = r.u16();
  if (n > cells || n * 17 > r.left) r.fail("more ships than there is room for");
  const ships = [];
  for (let id = 1; id <= n; id++) {
    const ship = { id, cell: r.u16(), hull: r.u8(), shield: r.u8(), score: r.u32(), back: r.u64(), owner: ownerName(r) };
    if (ship.cell >= cells || (ship.hull > 0) === (ship.back > 0)) r.fail(`ship ${id} cannot be`);
    ships.push(ship);
  }
  r.end();
  return ships;
}

/** The canonical snapshot of ships: what the digest is taken of. */
export function encodeGame(ships, cells) {
  const out = new Uint8Array(ships.reduce((n, s) => n + 17 + s.owner.length, 5));
  const view = new DataView(out.buffer);
  view.setUint8(0, 1);
  view.setUint16(1, cells);
  view.setUint16(3, ships.length);
  let at = 5;
  for (const s of ships) {
    view.setUint16(at, s.cell);
    view.setUint8(at + 2, s.hull);
    view.setUint8(at + 3, s.shield);
    view.setUint32(at + 4, s.score);
    view.setUint32(at + 8, Math.floor(s.back / 2 ** 32));
    view.setUint32(at + 12, s.back % 2 ** 32);
    view.setUint8(at + 16, s.owner.length);
    out.set(s.owner, at + 17);
    at += 17 + s.owner.length;
  }
  return out;
}

// The relay's messages: protobuf's JSON mapping writes 64-bit numbers as decimal strings, bytes as base64,
// and leaves out what is zero.

function number(v) {
  const n = Number(v ?? 0);
  if (!Number.isSafeInteger(n) || n < 0) throw new WireError("malformed message: number out of range");
  return n;
}

function bytes(v) {
  if (v === undefined) return new Uint8Array(0);
  if (typeof v !== "string") throw new WireError("malformed message: want base64");
  try {
    return Uint8Array.from(atob(v), (c) => c.charCodeAt(0));
  } catch {
    throw new WireError("malformed message: want base64");
  }
}

/** The beginning of a tile's history. */
export const beginning = Object.freeze({ epoch: 0, seq: 0, chain: "0", key: "0/0/0" });

/** A position. Two are the same history exactly if their keys are equal. The chain has 64 bits: text. */
export function position(p) {
  if (p === undefined || p === null) return beginning;
  const epoch = number(p.epoch), seq = number(p.seq), chain = String(p.chain ?? "0");
  if (!/^\d{1,20}$/.test(chain)) throw new WireError("malformed message: chain");
  return { epoch, seq, chain, key: `${epoch}/${seq}/${chain}` };
}

/** The form in which the relay reads what the page holds of a tile. */
export const held = ({ at, floor }) => ({
  position: { epoch: String(at.epoch), seq: String(at.seq), chain: at.chain }, epochFloor: String(floor),
});

export function frame(f) {
  return {
    position: position(f.position), prev: position(f.prev), tick: number(f.tick), at: number(f.atMs),
    rebase: f.kind === 2, payload: bytes(f.payload),
  };
}

export function sync(s) {
  if (s.tail !== undefined && !Array.isArray(s.tail)) throw new WireError("malformed message: tail");
  return {
    replace: s.replace === true, from: position(s.from), tick: number(s.tick), blob: bytes(s.blob),
    tail: (s.tail ?? []).map(frame), position: position(s.position),
    ownerEpoch: number(s.ownerEpoch), ownerContact: String(s.ownerContact ?? ""),
  };
}
