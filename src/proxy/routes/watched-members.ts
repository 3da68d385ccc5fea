// Request members that body rules name, and the search for them in a body, in any spelling that some server takes for the same.

import { type BodyRule, foldSteps, stepsOf } from '../../config/schema/body-rules.ts';
import { type GatewayError, parameterError } from '../../errors.ts';
import { inSlices } from '../../http/pieces/text-slices.ts';
import type { JsonScanner } from '../../wire/json/json.ts';
import { foldName, MemberNames } from '../../wire/json/json-bytes.ts';
import { JsonWalk, type WalkListener } from '../../wire/json/json-walk.ts';

/** The members that make the key of `balance: affinity`, in any spelling; the first that is there counts. */
export const KEY_NAMES = ['prompt_cache_key', 'previous_response_id', 'conversation'] as const;
/** Prompts, whose beginning is the key otherwise. */
export const PROMPT_NAMES = ['messages', 'input', 'prompt'] as const;

/** Offsets in the body. */
export interface FoundMember {
  /** Of the opening quote of its name. */
  readonly start: number;
  /** Behind the closing quote of its name. */
  readonly nameEnd: number;
  readonly valueStart: number;
  /** Of its value. */
  readonly end: number;
  /** It occurs more than once. */
  readonly isTwice: boolean;
}

/** By folded path: the watched members, and those above them. */
export type FoundMembers = ReadonlyMap<string, FoundMember>;

interface Node {
  /** The folded path of the member. */
  readonly path: string;
  readonly within: Map<string, Node>;
  names: MemberNames;
}

/** All members that some rule names. */
export class WatchedMembers {
  readonly root = newNode('');
  /** Of the deepest member. */
  readonly depth: number = 0;

  /** @param paths as configured; at least one */
  constructor(paths: Iterable<string>) {
    for (const path of paths) {
      const steps = stepsOf(path);
      let node = this.root;
      for (const [index, name] of steps.entries()) {
        const step = foldName(name);
        const next = node.within.get(step) ?? newNode(foldSteps(steps.slice(0, index + 1)));
        node.within.set(step, next);
        node.names = new MemberNames([...node.within.keys()]);
        node = next;
      }
      this.depth = Math.max(this.depth, steps.length);
    }
  }

  /**
   * Collects the paths of rules; undefined without any, so that bodies are not searched.
   * @param others paths that no rule names
   */
  static of(rules: Iterable<BodyRule>, others: readonly string[] = []): WatchedMembers | undefined {
    const paths = Array.from(rules, (rule) => (rule.kind === 'rename' ? [rule.path, rule.to] : [rule.path]));
    const all = new Set([...paths.flat(), ...others]);
    return all.size === 0 ? undefined : new WatchedMembers(all);
  }

  /** @param body a whole JSON text, which is valid */
  search(body: Buffer): FoundMembers {
    const search = new MemberSearch(this);
    new JsonWalk(search).advance(body, body.length, true);
    return search.found;
  }

  /** The same for a long text: other work runs between its slices. */
  async searchLarge(body: Buffer): Promise<FoundMembers> {
    const search = new MemberSearch(this);
    const walk = new JsonWalk(search);
    await inSlices(body.length, (end, isLast) => {
      walk.advance(body, end, isLast);
      return true;
    });
    return search.found;
  }
}

function newNode(path: string): Node {
  return { path, within: new Map(), names: new MemberNames([]) };
}

/** Finds the watched members during a walk over one JSON text. */
export class MemberSearch implements WalkListener {
  readonly depth: number;
  readonly found = new Map<string, FoundMember>();
  /** By depth: the node of the last key, and where the key stands. */
  readonly #nodes: (Node | undefined)[];
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];

  constructor({ root, depth }: WatchedMembers) {
    this.depth = depth;
    this.#nodes = [root];
  }

  opened(depth: number, isObject: boolean): void {
    // Array elements have no names.
    if (!isObject) this.#nodes[depth] = undefined;
  }

  key(depth: number, scanner: JsonScanner): void {
    const parent = this.#nodes[depth - 1];
    const name = parent === undefined ? undefined : scanner.keyAmong(parent.names);
    this.#nodes[depth] = name === undefined ? undefined : parent?.within.get(name);
    if (name === undefined) return;
    const { start, end } = scanner.keySpan;
    this.#starts[depth] = start;
    this.#ends[depth] = end;
  }

  value(depth: number, valueStart: number, end: number, isMember: boolean): void {
    const path = isMember && depth > 0 ? this.#nodes[depth]?.path : undefined;
    if (path === undefined) return;
    const first = this.found.get(path);
    const [start = 0, nameEnd = 0] = [this.#starts[depth], this.#ends[depth]];
    const found = first ?? { start, nameEnd, valueStart, end };
    this.found.set(path, { ...found, isTwice: first !== undefined });
  }
}

/** @param param as configured */
export function unsupportedMember(param: string): GatewayError {
  return parameterError('unsupported_parameter', param, 'is not allowed with this model');
}
