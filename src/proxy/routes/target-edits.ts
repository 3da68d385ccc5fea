// The changes of request bodies for one target, compiled from its body rules once per configuration.
import { type BodyRule, foldSteps, stepsOf } from '../../config/schema/body-rules.ts';

/** A member by its path. */
export interface MemberPath {
  /** As configured. */
  readonly text: string;
  readonly steps: readonly string[];
  /** Folded paths: of each member above it, and of itself. */
  readonly keys: readonly string[];
  /** Of itself. */
  readonly key: string;
}

export type TargetEdit =
  | { readonly kind: 'remove'; readonly member: MemberPath }
  | { readonly kind: 'rename'; readonly member: MemberPath; readonly to: MemberPath }
  | { readonly kind: 'set'; readonly member: MemberPath; readonly value: Buffer }
  | {
      readonly kind: 'default';
      readonly member: MemberPath;
      readonly value: Buffer;
      /** A member that is renamed to this one, which then needs no default. */
      readonly renamed: MemberPath | undefined;
    };

export class TargetEdits {
  /** As configured, for reports. */
  readonly rules: readonly BodyRule[];
  /** Defaults last: other rules may make the objects that they need. */
  readonly list: readonly TargetEdit[];
  /** The target does not receive `stream_options.include_usage`, so the gateway cannot request usage either. */
  readonly dropsUsageOption: boolean;
  /** The target does not receive the client's bound of the answer. */
  readonly dropsTokenLimit: boolean;
  private constructor(rules: readonly BodyRule[]) {
    this.rules = rules;
    const list = rules.flatMap((rule) => compile(rule, rules));
    this.list = list.toSorted((a, b) => Number(a.kind === 'default') - Number(b.kind === 'default'));
    this.dropsUsageOption = list.some(
      ({ kind, member }) => kind === 'remove' && USAGE_OPTION.keys.includes(member.key),
    );
    this.dropsTokenLimit = list.some(
      ({ kind, member }) => (kind === 'remove' || kind === 'set') && TOKEN_LIMITS.has(member.key),
    );
  }

  /** Undefined without a change, so that bodies are sent as they are. */
  static of(rules: readonly BodyRule[]): TargetEdits | undefined {
    const changes = rules.filter(({ kind }) => kind !== 'refuse');
    return changes.length === 0 ? undefined : new TargetEdits(changes);
  }
}

function pathOf(text: string): MemberPath {
  const steps = stepsOf(text);
  const keys = steps.map((_, index) => foldSteps(steps.slice(0, index + 1)));
  return { text, steps, keys, key: keys.at(-1) ?? '' };
}

const USAGE_OPTION = pathOf('stream_options.include_usage');
const TOKEN_LIMITS = new Set(
  ['max_tokens', 'max_completion_tokens', 'max_output_tokens'].map((name) => pathOf(name).key),
);

function compile(rule: BodyRule, all: readonly BodyRule[]): readonly TargetEdit[] {
  const member = pathOf(rule.path);
  switch (rule.kind) {
    case 'refuse':
      return [];
    case 'remove':
      return [{ kind: 'remove', member }];
    case 'rename':
      return [{ kind: 'rename', member, to: pathOf(rule.to) }];
    case 'set':
      return [{ kind: 'set', member, value: Buffer.from(rule.value.json) }];
    case 'default': {
      const rename = all.find((each) => each.kind === 'rename' && pathOf(each.to).key === member.key);
      const renamed = rename === undefined ? undefined : pathOf(rename.path);
      return [{ kind: 'default', member, value: Buffer.from(rule.value.json), renamed }];
    }
  }
}
