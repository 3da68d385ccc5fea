// The request of the official SDK, as it goes over the wire: its header block, in its order. It is recorded from the installed
// package by `node bench/load/record-sdk.ts`, and a test compares the two.
import { readFileSync } from 'node:fs';
import { z } from 'zod';

const FILE = new URL('./sdk-request.json', import.meta.url);

const recorded = z.object({
  /** Package and version. */
  from: z.string(),
  /** In the order of the wire; those that differ from request to request are empty. */
  headers: z.array(z.tuple([z.string(), z.string()])),
});

export type Recorded = z.infer<typeof recorded>;

/** As long as a project's key. */
export const VENDOR_KEY = `sk-proj-${'not-a-credential-'.repeat(10).slice(0, 156)}`;

let known: Recorded | undefined;

/** @throws Error if the recording is missing or is none */
export function sdkRequest(): Recorded {
  known ??= recorded.parse(JSON.parse(readFileSync(FILE, 'utf8')));
  return known;
}

/**
 * A header block as the SDK sends it, up to and with the empty line.
 * @param url where the request goes
 * @param values of headers, by their lower-case names; those that the SDK does not send come last
 */
export function requestHead(url: URL, values: Readonly<Record<string, string>>): string {
  const own = new Map(Object.entries({ host: url.host, ...values }));
  const lines = sdkRequest().headers.map(([name, value]): [string, string] => {
    const given = own.get(name) ?? value;
    own.delete(name);
    return [name, given];
  });
  const block = [...lines, ...own].map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return `POST ${url.pathname} HTTP/1.1\r\n${block}\r\n`;
}
