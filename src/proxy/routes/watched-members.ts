// Request members that the configuration rejects or removes, and the search for them in a body, in any spelling that some
// server takes for the same.

import type { MemberRules } from '../../config/schema/member-rules.ts';
import { GatewayError } from '../../errors.ts';
import { foldName } from '../../wire/fold-name.ts';
import type { JsonScanner, Span } from '../../wire/json.ts';
import { MemberNames } from '../../wire/json-bytes.ts';
import type { WalkListener } from '../../wire/json-walk.ts';

interface FoundMember {
  /** From the opening quote of its name to the end of its value. */
  readonly span: Span;
  /** It occurs more than once. */
  readonly isTwice: boolean;
}

/** By folded path. */
export type FoundMembers = ReadonlyMap<string, FoundMember>;

interface Node {
  /** The folded path where this member itself is watched, not only a nested one. */
  path: string | undefined;
  readonly within: Map<string, Node>;
  names: MemberNames;
}

/** The key of a configured path: equal for paths that some server takes for the same. */
export function foldPath(path: string): string {
  return path.split('.').map(foldName).join('.');
}

/** All members that some rule names. */
export class WatchedMembers {
  readonly root: Node = newNode();
  /** Of the deepest member. */
  readonly depth: number = 0;

  /** @param paths at least one */
  constructor(paths: readonly string[]) {
    for (const path of paths) {
      const steps = foldPath(path).split('.');
      let node = this.root;
      for (const step of steps) {
        const next = node.within.get(step) ?? newNode();
        node.within.set(step, next);
        node.names = new MemberNames([...node.within.keys()]);
        node = next;
      }
      node.path = steps.join('.');
      this.depth = Math.max(this.depth, steps.length);
    }
  }

  /** Collects the paths of all rules; undefined without any, so that bodies are not searched. */
  static of(rules: Iterable<MemberRules | undefined>): WatchedMembers | undefined {
    const paths = [...rules].flatMap((each) => (each === undefined ? [] : [...each.refuse, ...each.remove]));
    return paths.length === 0 ? undefined : new WatchedMembers(paths);
  }
}

function newNode(): Node {
  return { path: undefined, within: new Map(), names: new MemberNames([]) };
}

/** Finds the watched members during a walk over one JSON text. */
export class MemberSearch implements WalkListener {
  readonly depth: number;
  readonly found = new Map<string, FoundMember>();
  /** By depth: the node of the last key, and its offset. */
  readonly #nodes: (Node | undefined)[];
  readonly #starts: number[] = [];

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
    if (name !== undefined) this.#starts[depth] = scanner.keySpan.start;
  }

  value(depth: number, _start: number, end: number, isMember: boolean): void {
    const path = isMember && depth > 0 ? this.#nodes[depth]?.path : undefined;
    if (path === undefined) return;
    const first = this.found.get(path);
    const span = first?.span ?? { start: this.#starts[depth] ?? 0, end };
    this.found.set(path, { span, isTwice: first !== undefined });
  }
}

/** @param param as configured */
export function unsupportedMember(param: string): GatewayError {
  return new GatewayError(
    'unsupported_parameter',
    `The parameter '${param}' is not allowed with this model.`,
    {
      param,
    },
  );
}
