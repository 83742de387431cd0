/** The WebSocket subprotocol: the relay's messages as JSON. */
export declare const subprotocol: "tilefence.view.v1.json";

/** What was received cannot be read. A callback of Client that throws it has the tile repaired. */
export declare class WireError extends Error {}

/** A place in a tile's history. Two are the same history exactly if their keys are equal. */
export interface Position {
  readonly epoch: number;
  readonly seq: number;
  readonly chain: string;
  readonly key: string;
}

/** A committed batch. */
export interface Frame {
  position: Position;
  prev: Position;
  tick: number;
  /** When the owner formed it, ms since 1970 by its clock; 0: it did not say. */
  at: number;
  rebase: boolean;
  /** The events, by area. See events. */
  payload: Uint8Array;
}

/** Reads big-endian fields and varints off a part. It throws a WireError behind the end. */
export declare class Reader {
  constructor(bytes: Uint8Array, what: string);
  readonly bytes: Uint8Array;
  /** Bytes that have not been read. */
  readonly left: number;
  u8(): number;
  u16(): number;
  varint(limit?: number): number;
  take(n: number): Uint8Array;
  skip(n: number): number;
  end(): void;
  fail(why: string): never;
}

/** The parts of a payload, or of a divided tile's snapshot: areas, ascending, and what they hold. */
export declare function parts(list: Uint8Array, what: string): Generator<[area: number, content: Reader], void>;

/** The events of a payload: of all areas, or of those given. It throws a WireError. */
export declare function events(payload: Uint8Array, areas?: readonly number[]): [area: number, event: Uint8Array][];

/** A tile to join: its name, or, if it is divided, with the numbers of all its areas and those to begin with. */
export type Tile = string | { id: string; areas: number[]; watch?: number[] };

/** What is known about the connection. After "ended" no other one is made: the player is refused. */
export type Link = "wait" | "live" | "lost" | "ended";

/** The functions that a Client calls. */
export interface Calls {
  /** Start over from a snapshot, with these areas. The blob of a divided tile is a list of parts. */
  restore?(tile: string, blob: Uint8Array, areas: number[]): void;
  /** Add areas from a snapshot. */
  open?(tile: string, blob: Uint8Array, areas: number[]): void;
  /** Fold a batch, of these areas or of all that are held. arrived is ms since 1970, 0 within a Sync. */
  apply?(tile: string, frame: Frame, arrived: number, areas?: number[]): void;
  moved?(tile: string, position: Position, before: Position): void;
  owner?(tile: string, epoch: number, contact: string): void;
  link?(state: Link, text: string): void;
  trouble?(text: string, code?: string): void;
  token?(): string | Promise<string>;
}

/** A connection that a Client uses: another thread's socket, or a test's. */
export interface Line {
  connect(url: string, protocols: string | string[]): void;
  send(text: string): void;
  close?(): void;
}

/** What a Client has met. */
export interface Counts {
  frames: number;
  bytes: number;
  syncs: number;
  gaps: number;
  repairs: number;
  resyncs: number;
  duplicates: number;
  connects: number;
  stale: number;
}

/** Watches tiles of a relay. */
export declare class Client {
  constructor(url: string, tiles: readonly Tile[], calls?: Calls, line?: Line);
  readonly url: string;
  readonly counts: Counts;
  /** Whether there is a connection. */
  readonly open: boolean;
  /** Whether the client has ended for good. */
  readonly ended: boolean;
  /** Connects, and again whenever the connection is lost, until close. */
  connect(): void;
  /** Hears of a tile from now on, from scratch. It may be called at any time. */
  join(tile: Tile): void;
  /** Hears no more of a tile. */
  leave(id: string): void;
  /** Watches some areas of a tile instead of those watched so far. */
  watch(id: string, areas: number[]): void;
  /** Ends the connection for good. */
  close(): void;
  /** Of a line: the connection is there. */
  opened(): void;
  /** Of a line: a message, and when it arrived, ms since 1970. */
  message(text: string, at: number): void;
  /** Of a line: the connection is lost, with the status of the WebSocket. */
  closed(reason?: string, code?: number): void;
  /** Looks after everything that is overdue. The client calls it once a second. */
  remind(): void;
}
