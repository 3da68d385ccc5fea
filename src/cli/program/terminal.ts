// The streams and the environment of a command, and what its output may look like there.
import type { Writable } from 'node:stream';
import type { CommandDesk } from '../../console/console-desk.ts';

export interface CommandIo {
  readonly stdout: Writable & { readonly isTTY?: boolean; readonly columns?: number };
  readonly stderr: Writable;
  /** Default: of the process. */
  readonly stdin?: AsyncIterable<string | Uint8Array>;
  readonly env: NodeJS.ProcessEnv;
  /** Milliseconds since 1970. Default: the process's clock. */
  readonly now?: () => number;
  /** For a command that the gateway runs: its configuration and its open store. Default: the command reads and opens them. */
  readonly desk?: CommandDesk;
  /** Timeout of a request to a running gateway, in milliseconds. Default: the command's own. */
  readonly gatewayTimeoutMs?: number;
}

/** Whether to colour the standard output: https://no-color.org, `FORCE_COLOR` as Node reads it, and terminals that can. */
export function hasColors({ stdout, env }: Pick<CommandIo, 'stdout' | 'env'>): boolean {
  if (env['NO_COLOR']) return false;
  const forced = env['FORCE_COLOR'];
  if (forced !== undefined) return forced !== '0' && forced !== 'false';
  return stdout.isTTY === true && env['TERM'] !== 'dumb';
}

/** The columns of the terminal; undefined where the output goes to a pipe or a file. */
export function columnsOf({ stdout }: Pick<CommandIo, 'stdout'>): number | undefined {
  return stdout.isTTY === true ? stdout.columns : undefined;
}

/** Resolves when the text is flushed, so the process may exit next. */
export function write(stream: Writable, text: string): Promise<void> {
  return new Promise((done, failed) => {
    // A broken stream reports its error twice: to the callback, and as an event that would end the process if unhandled.
    stream.once('error', failed);
    stream.write(text, (error) => {
      if (error) return failed(error);
      stream.off('error', failed);
      done();
    });
  });
}
