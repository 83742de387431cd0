// Notices a WebSocket whose other end has vanished. A browser keeps it open for ever when no FIN has come, and
// shows its page no pings.

/**
 * Closes a socket when nothing comes for `within` ms after it was made, or while a message of send() has no
 * answer. With `always`, also when nothing comes for so long in between. A message whose JSON has an `id` that is
 * not empty counts as an answer. onclose is called at once, as if the socket had been closed with code 1006:
 * close() alone waits for an answer, too.
 */
export function endSilent(socket, within, { always = false } = {}) {
  let timer, unanswered = 0;
  const expect = () => { timer ??= setTimeout(lost, within); };
  const stop = () => { clearTimeout(timer); timer = undefined; };
  const answers = ({ data }) => { try { return Boolean(JSON.parse(data).id); } catch { return false; } };
  const heard = (event) => {
    if (unanswered > 0 && answers(event)) unanswered--;
    stop();
    if (always || unanswered > 0) expect();
  };
  function lost() {
    const closed = socket.onclose;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    closed?.({ code: 1006, reason: `nothing came for ${within / 1000} s` });
  }
  for (const event of ["open", "message"]) socket.addEventListener(event, heard);
  socket.addEventListener("close", stop);
  expect();
  return { send(data) { socket.send(data); unanswered++; expect(); } };
}
