// What comes over the wire, decoded: the relay's JSON messages, batches, the game's snapshots and events.
// Pure functions over bytes; every one throws a WireError on anything it does not know, before it allocates
// more than the input could hold.

export class WireError extends Error {}

const limits = { event: 64 << 10, owner: 64, number: 2 ** 32 - 1 };
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

/** The parts of a list, [area, content]: areas of the tile, ascending, none of them empty. */
function* parts(list, what) {
  const r = new Reader(list, what);
  for (let last = -1; r.left;) {
    const area = r.u8(), content = new Reader(r.take(r.varint(maxNumber)), what);
    if (area <= last || !content.left) r.fail("areas out of order, or an empty one");
    yield [area, content];
    last = area;
  }
}

/** The events, as [area, bytes], of a batch's payload. */
export function decodeBatch(payload) {
  const events = [];
  for (const [area, part] of parts(payload, "batch")) {
    while (part.left) events.push([area, part.take(part.varint(limits.event))]);
  }
  return events;
}

/** How many bytes of a batch's payload each area takes, as [area, bytes]. */
export function measure(payload) {
  return Array.from(parts(payload, "batch"), ([area, { left }]) => [area, left + (left < 128 ? 2 : 3)]);
}

export const Spawned = 1, Moved = 2, Fired = 3, Shielded = 4, Warped = 5, Returned = 6, Left = 7, Entered = 8, Scored = 9;

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
  for (const list of [s.tail, s.areas]) if (list !== undefined && !Array.isArray(list)) throw new WireError("malformed message: want a list");
  return {
    replace: s.replace === true, from: position(s.from), tick: number(s.tick), blob: bytes(s.blob),
    tail: (s.tail ?? []).map(frame), position: position(s.position),
    ownerEpoch: number(s.ownerEpoch), ownerContact: String(s.ownerContact ?? ""),
    opens: s.opens === true, areas: (s.areas ?? []).map(number), watch: number(s.watch),
  };
}
