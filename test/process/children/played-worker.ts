// Stands in for a worker, and loads nothing of the gateway, so that it is there at once: `die` ends as soon as it begins, `hang`
// says that it serves and then does not come back to its event loop, `chat` fills the log with long lines.

/** Longer than the primary of the test waits. After it a worker whose primary is gone ends. */
const HANG_MS = 5_000;

const [, , role] = process.argv;
if (role === 'die') process.exit(3);
if (role === 'chat') {
  for (let line = 0; line < 40; line += 1) {
    process.stdout.write(`${JSON.stringify({ chat: `${process.pid}é`.repeat(9_000) })}\n`);
  }
}
process.on('message', ({ kind }: { kind: string }) => {
  if (kind !== 'begin') return;
  process.send?.({ kind: 'ready', url: 'http://127.0.0.1:1' }, undefined, undefined, () => {
    if (role === 'hang') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, HANG_MS);
  });
});
process.send?.({ kind: 'hello' });
