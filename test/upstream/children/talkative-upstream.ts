// An upstream in a thread of its own that sends each of its answers a second time, 0 to 3 ms later, which nobody asked for. Each
// answer holds the marker of its request.
import { createServer, type Socket } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

/** Whether to send the second answer, and the longest time until it comes. */
interface Talk {
  readonly isTwice: boolean;
  readonly mostMs: number;
}

const { isTwice, mostMs }: Talk = workerData;

function answerOf(marker: string): string {
  const body = JSON.stringify({ marker });
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

function serve(socket: Socket): void {
  let text = '';
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (bytes: Buffer) => {
    text += bytes.toString('latin1');
    for (;;) {
      const end = text.indexOf('\r\n\r\n');
      if (end === -1) return;
      const length = Number(/content-length: (\d+)/.exec(text.slice(0, end))?.[1] ?? 0);
      if (text.length < end + 4 + length) return;
      const body = text.slice(end + 4, end + 4 + length);
      text = text.slice(end + 4 + length);
      const answer = answerOf(/"marker":"([^"]*)"/.exec(body)?.[1] ?? '');
      socket.write(answer);
      if (!isTwice) continue;
      const again = (): void => void (socket.writable && socket.write(answer));
      const ms = Math.floor(Math.random() * (mostMs + 1));
      if (ms === 0) setImmediate(again);
      else setTimeout(again, ms);
    }
  });
}

const server = createServer(serve);
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  parentPort?.postMessage(address !== null && typeof address === 'object' ? address.port : 0);
});
