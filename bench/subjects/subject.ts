// What the bench compares: where load can be sent, and whose CPU time and memory count.
import { VENDOR_KEY } from '../load/sdk-request.ts';
import type { Started } from '../processes.ts';

export const CHAT = '/v1/chat/completions';

export type SubjectName =
  | 'direct'
  | 'nginx'
  | 'nginx, access log'
  | 'gateway'
  | 'Node, sockets'
  | 'Node, server'
  | 'Node, http-proxy-3'
  | 'portkey'
  | 'litellm'
  | 'litellm, key and limits'
  | 'one api';

export interface Subject {
  readonly name: SubjectName;
  readonly url: string;
  /** The processes whose CPU time and memory count; none when the upstream is asked directly. */
  readonly pids: readonly number[];
  /** Of every request, besides those that the SDK sends, or instead of them. */
  readonly headers: Readonly<Record<string, string>>;
  /** The model's name in requests. */
  readonly alias: string;
  /** The model's name in its answers; null where they are not the upstream's, byte for byte but for it. */
  readonly model: string | null;
  /** Where requests with large bodies go, to an upstream that is another process. */
  readonly large?: { readonly url: string; readonly alias: string };
  /** Empties its access log, so that a long run does not fill the disk. */
  readonly emptyLog?: () => void;
  /**
   * Collects garbage, where that can be asked for, so that memory which is left is memory in use.
   * @returns bytes that JavaScript holds: its heap, and buffers outside of it
   */
  readonly settle?: () => Promise<number>;
  /** The process, for who measures it from inside. */
  readonly process?: Started;
  stop(): Promise<void>;
}

/** Sends nothing that a proxy must check, as what is asked has no keys. */
export const NO_HEADERS: Readonly<Record<string, string>> = { authorization: `Bearer ${VENDOR_KEY}` };
