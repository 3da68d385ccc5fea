// Stands in for a worker without loading the gateway, so that it starts at once: `die` exits immediately, `hang` reports ready
// and then blocks its event loop, `chat` fills the log with long lines.

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
