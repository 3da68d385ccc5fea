// The output of a command, as text.
import { Writable } from 'node:stream';

export interface Collector {
  readonly stream: Writable;
  text(): string;
}

export function collector(): Collector {
  const chunks: string[] = [];
  const stream = new Writable({
    write(chunk, _encoding, done) {
      chunks.push(String(chunk));
      done();
    },
  });
  return { stream, text: () => chunks.join('') };
}
