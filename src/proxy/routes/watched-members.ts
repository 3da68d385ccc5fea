// Members of a request that the configuration refuses or removes: which there are, and where they stand in a body, in any
// spelling that some reader takes for the same.

import type { MemberRules } from '../../config/schema/member-rules.ts';
import { GatewayError } from '../../errors.ts';
import { foldName } from '../../wire/fold-name.ts';
import type { JsonScanner, Span } from '../../wire/json.ts';
import { MemberNames } from '../../wire/json-bytes.ts';
import type { WalkListener } from '../../wire/json-walk.ts';

interface FoundMember {
  /** From the quote of its name to the end of its value. */
  readonly span: Span;
  /** It stands there more than once. */
  readonly isTwice: boolean;
}

/** By the folded path. */
export type FoundMembers = ReadonlyMap<string, FoundMember>;

interface Node {
  /** The folded path, where this member itself is watched, and not only one within. */
  path: string | undefined;
  readonly within: Map<string, Node>;
  names: MemberNames;
}

/** What a path of the configuration is known by: two that some reader takes for the same are the same. */
export function foldPath(path: string): string {
  return path.split('.').map(foldName).join('.');
}

/** All members that some rule is about. */
export class WatchedMembers {
  readonly root: Node = newNode();
  /** Of the deepest one. */
  readonly depth: number = 0;

  /** @param paths of at least one member */
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

  /** Of every rule there is; undefined where there is none, so that nothing is looked for. */
  static of(rules: Iterable<MemberRules | undefined>): WatchedMembers | undefined {
    const paths = [...rules].flatMap((each) => (each === undefined ? [] : [...each.refuse, ...each.remove]));
    return paths.length === 0 ? undefined : new WatchedMembers(paths);
  }
}

function newNode(): Node {
  return { path: undefined, within: new Map(), names: new MemberNames([]) };
}

/** Finds the watched members of one JSON text as it is walked over. */
export class MemberSearch implements WalkListener {
  readonly depth: number;
  readonly found = new Map<string, FoundMember>();
  /** By depth: what the last key there leads to, and where it began. */
  readonly #nodes: (Node | undefined)[];
  readonly #starts: number[] = [];

  constructor({ root, depth }: WatchedMembers) {
    this.depth = depth;
    this.#nodes = [root];
  }

  opened(depth: number, isObject: boolean): void {
    // Elements of an array have no names.
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

/** @param param as it is configured */
export function unsupportedMember(param: string): GatewayError {
  return new GatewayError(
    'unsupported_parameter',
    `The parameter '${param}' is not allowed with this model.`,
    {
      param,
    },
  );
}
