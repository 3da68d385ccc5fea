// Body rules: the members of a request that an upstream, a model or a target sets, defaults, removes, renames or rejects. Schema,
// contradictions, the order of the layers, and the rules as text; proxy/request/member-edits.ts applies them.
import { z } from 'zod';
import { foldName } from '../../wire/json/json-bytes.ts';
import { meaningOf } from '../../wire/object-names.ts';
import { withoutInvisible } from '../invisible-characters.ts';
import { anyValue, type JsonValue, mapping, name, optional, section, text } from './field-kinds.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';

/** All members that the gateway itself reads. */
export const READ_MEMBERS = [
  'model',
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'n',
  'max_output_tokens',
  'previous_response_id',
  'store',
  'background',
  'encoding_format',
  'input',
  'stream_format',
  'response_format',
  'prompt',
  'best_of',
  'documents',
  'text_2',
  'data_2',
  'fallbacks',
  'tools',
] as const;

/** Those of them that rules may change, because the gateway only estimates with them. */
const ESTIMATED = ['max_tokens', 'max_completion_tokens', 'max_output_tokens'].map(foldName);
/** As well, but nothing of the client's may become them: the gateway checks the models that they name. */
const CHECKED = ['fallbacks', 'tools'].map(foldName);
const OPTIONS = foldName('stream_options');
/** Those that gateway and upstream have to read alike. */
const OWNED = new Set<string>(
  READ_MEMBERS.map(foldName).filter((each) => ![...ESTIMATED, ...CHECKED].includes(each)),
);

/** One rule. Paths are as configured. */
export type BodyRule =
  | { readonly kind: 'refuse' | 'remove'; readonly path: string }
  | { readonly kind: 'rename'; readonly path: string; readonly to: string }
  | { readonly kind: 'set' | 'default'; readonly path: string; readonly value: JsonValue };

/** A name, or a dotted path to a nested member. `\.` is a dot in a name. */
const PATH = /^(?:[A-Za-z0-9_-]|\\\.){1,64}(?:\.(?:[A-Za-z0-9_-]|\\\.){1,64}){0,5}$/;

/** The names of a path: `metadata.a\.b` has `metadata` and `a.b`. */
export function stepsOf(path: string): readonly string[] {
  return path.split(/(?<!\\)\./).map((step) => step.replaceAll('\\.', '.'));
}

/** The path of these names, so that two paths that some server takes for the same are equal. */
export function foldSteps(steps: readonly string[]): string {
  return steps.map((step) => foldName(step).replaceAll('.', '\\.')).join('.');
}

/** The folded form of a path. */
export const foldPath = (path: string): string => foldSteps(stepsOf(path));

function pathFault(path: string): string | undefined {
  const isPath = PATH.test(path) && stepsOf(path).every((each) => foldName(each) !== '');
  return isPath
    ? undefined
    : 'must be the name of a member, such as provider, or a path, such as session.model';
}

const firstOf = (path: string): string => foldName(stepsOf(path)[0] ?? '');

function changeFault(path: string): string | undefined {
  return OWNED.has(firstOf(path))
    ? 'is read by the gateway and cannot be changed; use `refuse` instead'
    : pathFault(path);
}

/** The gateway checks the ids of objects in the client's body, by the names of members. */
function newNameFault(path: string): string | undefined {
  if (CHECKED.includes(firstOf(path)))
    return 'is checked by the gateway and cannot be a new name: the gateway would not check its models';
  return stepsOf(path).some((step) => /^(object|response|approval|id)$/.test(meaningOf(step)))
    ? 'names an object of a holder and cannot be a new name: the gateway would not check the object'
    : changeFault(path);
}

const reader =
  (faultOf: (path: string) => string | undefined) =>
  (path: string): ScalarResult<string> => {
    const fault = faultOf(path);
    return fault === undefined ? accepted(path) : rejected(fault);
  };

const paths = (faultOf: (path: string) => string | undefined) =>
  z.array(text(reader(faultOf))).exactOptional();

const refuse = paths((path) =>
  foldName(path) === 'model' ? 'must not be model: requests need it for routing' : pathFault(path),
).describe('Requests with one of these members get a 400, whichever target they would go to.');

const remove = paths((path) => (firstOf(path) === OPTIONS ? pathFault(path) : changeFault(path))).describe(
  'Members that are removed.',
);

const member = name(changeFault, (_, empty) => !empty);

interface RuleFields {
  readonly refuse?: readonly string[];
  readonly remove?: readonly string[];
  readonly rename?: Readonly<Record<string, string>>;
  readonly set?: Readonly<Record<string, JsonValue>>;
  readonly default?: Readonly<Record<string, JsonValue>>;
}

interface PlacedRule {
  readonly rule: BodyRule;
  /** Its place in the section. */
  readonly at: [string, string | number];
}

function placedRules(fields: RuleFields): PlacedRule[] {
  const listed = (kind: 'refuse' | 'remove') =>
    (fields[kind] ?? []).map((path, index): PlacedRule => ({ rule: { kind, path }, at: [kind, index] }));
  const valued = (kind: 'set' | 'default') =>
    Object.entries(fields[kind] ?? {}).map(
      ([path, value]): PlacedRule => ({ rule: { kind, path, value }, at: [kind, path] }),
    );
  const renamed = Object.entries(fields.rename ?? {}).map(
    ([path, to]): PlacedRule => ({ rule: { kind: 'rename', path, to }, at: ['rename', path] }),
  );
  return [...listed('refuse'), ...listed('remove'), ...renamed, ...valued('set'), ...valued('default')];
}

/** The rules of one section, or a fault at the later one of two that contradict each other. */
function readRules(fields: RuleFields, context: z.core.$RefinementCtx): readonly BodyRule[] {
  const placed = placedRules(fields);
  for (const [index, { rule, at }] of placed.entries()) {
    const other = placed.slice(0, index).find((each) => contradict(rule, each.rule));
    const isOwn = rule.kind === 'rename' && overlap(rule.path, rule.to);
    if (other === undefined && !isOwn) continue;
    const against = other === undefined ? 'its own new name' : `\`${other.at[0]}\` of \`${other.rule.path}\``;
    const message = `\`${rule.path}\` contradicts ${against}: a member has one rule, and none above or below it`;
    context.addIssue({ code: 'custom', message, path: at });
  }
  return placed.map(({ rule }) => rule);
}

/** Whether two paths are one, or one is above the other. */
function overlap(a: string, b: string): boolean {
  const [first, second] = [`${foldPath(a)}.`, `${foldPath(b)}.`];
  return first.startsWith(second) || second.startsWith(first);
}

const isSame = (a: string, b: string): boolean => foldPath(a) === foldPath(b);

/** Whether the new name of a rename is where the other rule changes something else than its default. */
function meetsNewName(rename: BodyRule, other: BodyRule): boolean {
  if (rename.kind !== 'rename' || other.kind === 'refuse') return false;
  if (other.kind === 'rename' && overlap(rename.to, other.to)) return true;
  return overlap(rename.to, other.path) && !(other.kind === 'default' && isSame(rename.to, other.path));
}

function contradict(a: BodyRule, b: BodyRule): boolean {
  if (a.kind === 'refuse' || b.kind === 'refuse') return a.kind !== b.kind && isSame(a.path, b.path);
  return overlap(a.path, b.path) || meetsNewName(a, b) || meetsNewName(b, a);
}

/** `body` of an upstream, a model or a target. */
export const bodyRules = section({
  refuse,
  remove,
  rename: optional(mapping(member, text(reader(newNameFault)))).describe(
    'Members that get another name: `OLD: NEW`. A request with both names gets a 400.',
  ),
  set: optional(mapping(member, anyValue())).describe(
    'Members that always have this value. A missing parent is created.',
  ),
  default: optional(mapping(member, anyValue())).describe(
    'Members that have this value where the request does not have them.',
  ),
}).transform(readRules);

/** The earlier form of `body`. */
export const memberRules = section({ refuse, remove }).transform(readRules);

/** The rules under either name; nothing without any. */
export function oneBody(
  members: readonly BodyRule[] | undefined,
  body: readonly BodyRule[] | undefined,
): { body?: readonly BodyRule[] } {
  const rules = [...(members ?? []), ...(body ?? [])];
  return rules.length === 0 ? {} : { body: rules };
}

/**
 * The rules that hold for one target. A rule of a nearer layer replaces those of farther ones about the same member, or one above
 * or below it. Where it changes the new name of a farther rename, the old name is removed.
 * @param layers the farthest first: of the upstream, the model, the target
 */
export function mergeRules(...layers: readonly (readonly BodyRule[] | undefined)[]): readonly BodyRule[] {
  let merged: readonly BodyRule[] = [];
  for (const near of layers) {
    if (near === undefined) continue;
    merged = [...merged.flatMap((far) => leftOf(far, near)), ...near];
  }
  return merged;
}

function leftOf(far: BodyRule, near: readonly BodyRule[]): readonly BodyRule[] {
  if (far.kind === 'refuse') return near.some(({ path }) => isSame(path, far.path)) ? [] : [far];
  let left: readonly BodyRule[] = [far];
  for (const rule of near) {
    if (rule.kind === 'refuse') continue;
    if (overlap(far.path, rule.path) || meetsNewName(rule, far)) return [];
    if (meetsNewName(far, rule)) left = [{ kind: 'remove', path: far.path }];
  }
  return left;
}

const VERBS: Readonly<Record<BodyRule['kind'], string>> = {
  refuse: 'refuses',
  remove: 'removes',
  rename: 'renames',
  set: 'sets',
  default: 'sets where missing',
};

/** `refuses models, provider` and `removes user`, for the kinds that there are. */
export function describeBody(rules: readonly BodyRule[] = []): string[] {
  return Object.entries(VERBS).flatMap(([kind, verb]) => {
    const texts = rules.filter((rule) => rule.kind === kind).map(describeRule);
    return texts.length === 0 ? [] : [`${verb} ${texts.join(', ')}`];
  });
}

function describeRule(rule: BodyRule): string {
  switch (rule.kind) {
    case 'rename':
      return `${rule.path} to ${rule.to}`;
    case 'set':
    case 'default':
      return `${rule.path}: ${showValue(rule.value)}`;
    default:
      return rule.path;
  }
}

/** Longest value in a message, in characters. */
const MAX_SHOWN = 80;

/** A value that comes from the environment or a file is hidden. Control characters, which could steer a terminal, are escaped. */
function showValue({ json, isHidden }: JsonValue): string {
  if (isHidden) return '****';
  const short = json.length > MAX_SHOWN ? `${json.slice(0, MAX_SHOWN)}…` : json;
  return withoutInvisible(short);
}
