// Options that commands for keys, holders and teams share: labels, times, names, and who gives the command.
import { userInfo } from 'node:os';
import { storableText } from '../../auth/stored-text.ts';
import type { DynamicConfig, Tier } from '../../config/schema/config-schema.ts';
import { ENDPOINTS, offered } from '../../config/schema/endpoint-names.ts';
import { formatDuration } from '../../config/schema/units.ts';
import type { Terms } from '../../config/terms.ts';
import { matchesModel } from '../../proxy/routes/access.ts';
import { type Authorship, isPrefix, type LabelChange, type OwnerLabels } from '../../store/key-record.ts';
import type { Team } from '../../store/organisation-record.ts';
import type { Store } from '../../store/store.ts';
import { didYouMean, oneOf, readTime, UsageError } from '../program/arguments.ts';
import { flag, type Given, list, SHOW_OPTIONS, text } from '../program/command.ts';
import { type CommandIo, write } from '../program/terminal.ts';
import { readPrefix } from '../support-command.ts';
import { ownText } from '../terms-fields.ts';
import { LIMIT_OPTIONS, type LimitOwner, limitOptions } from './limit-options.ts';

/** As in Kubernetes, without the slash. */
const LABEL_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/i;
/** Of a holder or a team. */
const ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/i;
const TEAMS_READ = 1000;

/** Who gives a command that changes something, and why. */
export const AUTHOR_OPTIONS = {
  actor: text('NAME', 'for the history; the default is the user of the operating system'),
  reason: text('TEXT', 'for the history'),
} as const;
/** Of a command that changes a record and prints the result. */
export const CHANGE_OPTIONS = { ...AUTHOR_OPTIONS, ...SHOW_OPTIONS } as const;
export const LABEL = list('NAME=VALUE', 'a label');
export const LABEL_FILTER = list('NAME=VALUE', 'only with this label; VALUE may end with *');
export const REMOVED_LABEL = list('NAME', 'a label to remove');

/** `--label NAME=VALUE`, any number of times. @throws UsageError */
export function labelOptions({ label }: { readonly label: readonly string[] }): OwnerLabels {
  const labels: Record<string, string> = {};
  for (const given of label) {
    const at = given.indexOf('=');
    const name = at === -1 ? given : given.slice(0, at);
    const value = given.slice(at + 1).trim();
    if (at === -1 || value === '') throw new UsageError('--label is NAME=VALUE, such as team=search');
    requireLabelName(name);
    if (Object.hasOwn(labels, name)) throw new UsageError(`the label ${name} is given twice`);
    labels[name] = storableText(value, 'label');
  }
  return labels;
}

/** `--label` and `--remove-label NAME`. @throws UsageError */
export function labelChangeOptions(given: {
  readonly label: readonly string[];
  readonly removeLabel: readonly string[];
}): LabelChange {
  const labels = labelOptions(given);
  for (const name of given.removeLabel) {
    requireLabelName(name);
    if (Object.hasOwn(labels, name)) throw new UsageError(`the label ${name} is given and removed`);
  }
  return { ...Object.fromEntries(given.removeLabel.map((name) => [name, null])), ...labels };
}

/** Says which labels to remove a holder or a team does not have: it is as it is to be, but the name may be mistyped. */
export async function writeMissingLabels(
  { organisation }: Store,
  ownerId: string,
  { removeLabel }: { readonly removeLabel: readonly string[] },
  { stderr }: CommandIo,
): Promise<void> {
  if (removeLabel.length === 0) return;
  const own = Object.keys(await organisation.labelsOf(ownerId));
  for (const name of removeLabel)
    if (!own.includes(name))
      await write(stderr, `There is no label ${name} to remove${didYouMean(name, own)}.\n`);
}

/** @throws Error that names the nearest label, where no owner has one of these */
export async function requireLabels({ organisation }: Store, names: Iterable<string>): Promise<void> {
  const all = [...names];
  if (all.length === 0) return;
  const known = await organisation.labelNames();
  for (const name of all)
    if (!known.includes(name))
      throw new Error(`no holder and no team has a label with this name${didYouMean(name, known)}`);
}

function requireLabelName(name: string): void {
  if (LABEL_NAME.test(name)) return;
  throw new UsageError('a label has a name of letters, digits, `.`, `_` and `-`, at most 63 characters');
}

/** An expiry of a key, which must be to come. @throws UsageError */
export function readExpiry(text: string, now: number): string {
  const at = readTime(text, '--expires', now, 1);
  if (Date.parse(at) > now) return at;
  throw new UsageError(
    `--expires is in the past: ${at} was ${formatDuration(roundedMs(now - Date.parse(at)))} ago`,
  );
}

function roundedMs(ms: number): number {
  const unit = [86_400_000, 3_600_000, 60_000].find((each) => ms >= each);
  return unit === undefined ? Math.ceil(ms / 1000) * 1000 : Math.round(ms / unit) * unit;
}

/** A name for people. @throws UsageError, GatewayError invalid_value */
export function readName(text: string | undefined): string | undefined {
  return text === undefined ? undefined : storableText(text, 'name');
}

/** Who gives the command, for the events: `--actor`, or the user of the operating system. */
export function actorOf({ actor }: { readonly actor: string | undefined }, { env }: CommandIo): string {
  return storableText(actor ?? `cli:${env['SUDO_USER'] || env['USER'] || userName()}`, 'actor');
}

/** Who gives the command, when and why: `--actor` and `--reason`. */
export function authorOf(given: Given<typeof AUTHOR_OPTIONS>, io: CommandIo) {
  const { reason } = given;
  return {
    actor: actorOf(given, io),
    reason: reason === undefined ? null : storableText(reason, 'reason'),
    at: new Date().toISOString(),
  };
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // A user without an entry in the system, as in many containers.
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}

/** @param name of the team, or its id, which histories have beside the name @throws Error that names the nearest team */
export async function teamNamed(store: Store, name: string): Promise<Team> {
  const named = await store.organisation.findTeam({ name });
  const team =
    named ?? (ID.test(name) ? await store.organisation.findTeam({ id: name.toLowerCase() }) : named);
  if (team !== undefined) return team;
  const teams = await store.organisation.listTeams({ limit: TEAMS_READ });
  const names = teams.map((each) => each.name);
  throw new Error(`there is no team with this name${didYouMean(name, names)}`);
}

/** ` by ann: left`, of an event of a history. */
export function authorText({ actor, reason }: Pick<Authorship, 'actor' | 'reason'>): string {
  return `${actor === null ? '' : ` by ${actor}`}${reason === null ? '' : `: ${reason}`}`;
}

/** What lists show of a holder or a team otherwise than the JSON. */
export const shownOwner = ({ labels, terms }: { readonly labels: OwnerLabels; readonly terms: Terms }) => ({
  labels: labelText(labels) || null,
  limits: ownText(terms),
});

/** Labels as text: `env=prod, team=search`. */
export function labelText(labels: OwnerLabels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(', ');
}

/** Options for what a holder or a key may use. @param whose what it is compared with */
export function termsOptionsOf(whose: string) {
  return {
    models: text('LIST', `models of those that ${whose} may use, with commas, or all`),
    endpoints: text('LIST', `endpoints of those that ${whose} may use, with commas, or all`),
    ...LIMIT_OPTIONS,
    force: flag(`allow more than ${whose} has`),
  } as const;
}

/**
 * `--models` and `--endpoints`: names separated by commas, or `all` for no restriction; and the options for limits.
 * @param before the terms that change
 * @param owner its names are a subset of what its tier may use
 * @returns undefined without these options
 * @throws UsageError that names what is wrong, and the nearest right name
 */
export function termsOptions(
  given: Given<ReturnType<typeof termsOptionsOf>>,
  before: Terms,
  owner: LimitOwner & { readonly tier: Tier },
): Terms | undefined {
  const limited = limitOptions(given, before, owner, given.force);
  const { models: ofModels, endpoints: ofEndpoints } = given;
  if (ofModels === undefined && ofEndpoints === undefined) return limited;
  const { tier, config, kind, holderTerms = {} } = owner;
  const { models: oldModels, endpoints: oldEndpoints, ...others } = limited ?? before;
  const names = ofModels === undefined ? oldModels : namesIn(ofModels, 'models');
  // What the owner has already may be gone from the configuration.
  for (const name of names ?? [])
    if (oldModels?.includes(name) !== true) requireModel(name, tier, config.models, holderTerms.models);
  const listed = ofEndpoints === undefined ? oldEndpoints : namesIn(ofEndpoints, 'endpoints');
  const allowed = offered(config.tiers[tier]?.endpoints ?? ENDPOINTS, holderTerms.endpoints);
  const whose = kind === 'key' && holderTerms.endpoints !== undefined ? 'holder' : `tier ${tier}`;
  const endpoints = listed?.map(
    (name) => oldEndpoints?.find((old) => old === name) ?? oneOf(name, allowed, `endpoint of the ${whose}`),
  );
  return { ...others, ...(names && { models: names }), ...(endpoints && { endpoints }) };
}

function namesIn(given: string, option: string): readonly string[] | undefined {
  if (given === 'all') return undefined;
  const names = given.split(',').map((name) => name.trim());
  if (names.includes('')) throw new UsageError(`--${option} is a list of names with commas, or all`);
  return [...new Set(names)];
}

/** @param ofHolder of a key: its holder's own restriction @throws UsageError where the name stands for no model of these */
function requireModel(
  name: string,
  tier: Tier,
  models: DynamicConfig['models'],
  ofHolder: Terms['models'],
): void {
  const overlaps = (other: string) => matchesModel(name, other) || matchesModel(other, name);
  const known = Object.entries(models).filter(([model]) => overlaps(model));
  if (known.length === 0)
    throw new UsageError(`no model is called like one of --models${didYouMean(name, Object.keys(models))}`);
  if (!known.some(([, model]) => model.tiers.includes(tier)))
    throw new UsageError(`a model of --models is not offered to the tier ${tier}`);
  if (ofHolder !== undefined && !ofHolder.some(overlaps))
    throw new UsageError(
      `a model of --models is not among those of the holder, ${ofHolder.join(', ')}${didYouMean(name, ofHolder)}`,
    );
}

/** Warns when somebody gets a tier that the configuration does not list. */
export async function warnUnlisted(
  tier: Tier | undefined,
  { tiers }: DynamicConfig,
  io: CommandIo,
): Promise<void> {
  if (tier === undefined || tiers[tier] !== undefined) return;
  const all = Object.keys(tiers).join(', ');
  await write(io.stderr, `warning: no tier limits this holder: \`tiers\` has ${all} and not ${tier}\n`);
}

/** A prefix, or the id of a holder. @throws UsageError */
export async function holderOperand(given: string, io: CommandIo): Promise<string> {
  return ID.test(given) ? given.toLowerCase() : readPrefix(given, io);
}

/** Keys by their holder: its id, or the beginning of its name. */
export function holderFilter(given: string | undefined) {
  return given !== undefined && ID.test(given) ? { holderId: given.toLowerCase() } : { name: given };
}

export const noSuchHolder = () => new Error('no key with this prefix, and no holder with this id');

/** The id of a holder by the prefix of one of its keys, or by its id; undefined where there is none. */
export async function holderId(store: Store, text: string): Promise<string | undefined> {
  if (isPrefix(text)) return (await store.findKey(text))?.holderId;
  return (await store.findHolder(text))?.id;
}
