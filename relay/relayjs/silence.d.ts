/** Closes a socket when nothing comes for `within` ms after it was made, or while a message of send() has no answer. */
export declare function endSilent(
  socket: WebSocket, within: number, options?: { always?: boolean },
): { send(data: string): void };
