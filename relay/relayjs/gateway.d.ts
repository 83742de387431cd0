/** The gateway's WebSocket subprotocol. */
export declare const subprotocol: "tilefence.intent.v1.json";

/** The player has left the tile for another one, where later intents belong. */
export interface Crossed {
  to: string;
  entity: string;
}

/** An error that is final for the intent. */
export interface Refusal {
  code: string;
  message: string;
  retryable: boolean;
  /** ms */
  retry_after?: number;
}

/** What became of an intent: an outcome, an error, or unknown. */
export interface Answer {
  outcome?: "applied" | "fizzled" | "rejected" | "redirected";
  /** What the game's rules say about it. */
  why?: string;
  reason?: string;
  refunded?: boolean;
  /** When the ledger recorded it, ms since 1970. */
  at?: number;
  admission?: string;
  crossed?: Crossed;
  where?: { tile?: string };
  error?: Refusal;
  unknown?: true;
}

/** The functions that a Gateway calls. */
export interface GatewayCalls {
  crossed?(crossing: Crossed): void;
  told?(message: Uint8Array): void;
  link?(state: "wait" | "live" | "lost" | "ended", text: string): void;
  token?(): string | Promise<string>;
}

/** Sends a player's intents. */
export declare class Gateway {
  constructor(url: string, calls?: GatewayCalls);
  readonly url: string;
  readonly ended: boolean;
  /** Connects, and again whenever the connection is lost, until close. */
  connect(): Promise<void>;
  /** Sends a movement: once, or, with a move ID, until its outcome is known. */
  move(tile: string | undefined, body: Uint8Array, options?: { move?: string; within?: number }): Promise<Answer>;
  /** Sends an action until its outcome is known. The ID is a new one for each. */
  act(tile: string, action: { action: string; asset?: string; cost?: number; body: Uint8Array }): Promise<Answer>;
  /** Asks for the outcome of an action that this player has sent before. */
  ask(action: string): Promise<Answer>;
  /** The tile in which the player is; undefined if it is not known. */
  where(): Promise<string | undefined>;
  /** Ends the connection for good. */
  close(): void;
}
