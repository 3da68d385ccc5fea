// `tollgate upstreams`: the states of upstreams over all processes, their history, and taking one out of service by hand. Drains and
// events are in the store; states come from running gateways.
import type { Config, DynamicConfig } from '../../config/schema/config-schema.ts';
import { weightInUse } from '../../config/schema/target-schema.ts';
import type { Store } from '../../store/store.ts';
import type { UpstreamEvent } from '../../store/upstream-record.ts';
import { DRAINS_CHANGED, isOver, shownDrain } from '../../upstream/state/drains.ts';
import type { UpstreamState } from '../../upstream/state/upstream-state.ts';
import { type Arguments, didYouMean, readArguments, readTime, UsageError } from '../arguments.ts';
import { broadcastText, type FleetAction } from '../fleet-action.ts';
import { ageText, drainText, fetchLiveState, gatewayText, mergedStates } from '../live-state.ts';
import { authorOf } from '../owners/owner-options.ts';
import { aligned, runSubcommand } from '../support-command.ts';
import { openFleet, withStore, writeChange } from '../support-desk.ts';
import { type CommandIo, write } from '../terminal.ts';

const UPSTREAMS_USAGE = `Usage: tollgate upstreams COMMAND [--config FILE]

  list [--json]                       the state of each upstream, over all processes of the fleet
  show NAME [--json]                  one upstream with its models, and what each process reports
  events [--upstream NAME] [--limit N] [--json]
                                      the last changes of states, oldest first; 50 by default, at most 1000
  drain NAME [--for TIME] [--reason TEXT] [--json]
                                      it gets no new requests; running ones finish
  resume NAME [--reason TEXT] [--json]

TIME is a duration, such as 30m, or a day, such as 2030-01-31; without it, a drain lasts until resume.
drain and resume take --actor NAME for the history; the default is the user of the operating system.
--config names the configuration file; the default is ./config.yaml.
`;

const TEXT = { name: 'upstreams', usage: UPSTREAMS_USAGE };
const CHANGE = { config: 'text', actor: 'text', reason: 'text', json: 'flag' } as const;
const DRAINING = { what: 'draining', cutOff: 'as soon as it reaches one of them' };
const DRAIN: FleetAction = { many: 'send it no new requests', one: 'stops', ...DRAINING };
const RESUME: FleetAction = { many: 'send it requests again', one: 'resumes', ...DRAINING };
/** Timeout of the request to a running gateway, in milliseconds. */
const TIMEOUT_MS = 2000;
const EVENTS = 50;
const MAX_EVENTS = 1000;

/** @returns the exit code: 0 done, 1 not found or not possible, 2 wrong usage, 3 done but not confirmed by all replicas */
export function runUpstreams(argv: readonly string[], io: CommandIo): Promise<number> {
  return runSubcommand(TEXT, { list, show, events, drain, resume }, argv, io);
}

/** The state of one upstream, or why none is known. */
type Shown =
  | UpstreamState
  | {
      readonly upstream: string;
      readonly state: 'unknown' | 'drained' | 'disabled';
      readonly drained: UpstreamState['drained'];
    };

async function statesOf(config: Config, { upstreams }: Store, { desk }: CommandIo) {
  const [live, drains] = await Promise.all([
    fetchLiveState(config.static, TIMEOUT_MS, desk),
    upstreams.drains(),
  ]);
  const merged = mergedStates(live);
  const shown = Object.entries(config.dynamic.upstreams).map(([name, { enabled }]): Shown => {
    const state = merged?.find((each) => each.upstream === name);
    if (state !== undefined) return state;
    const row = drains.find((each) => each.upstream === name);
    const drained = row === undefined || isOver(row) ? null : shownDrain(row);
    return {
      upstream: name,
      state: enabled === false ? 'disabled' : drained === null ? 'unknown' : 'drained',
      drained,
    };
  });
  return { live, shown };
}

async function list(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag' });
  return withStore(given, io, 'must exist', async (store, config) => {
    const { live, shown } = await statesOf(config, store, io);
    if (given.flag('json')) {
      await write(io.stdout, `${JSON.stringify(shown, null, 2)}\n`);
      return 0;
    }
    await write(io.stderr, `${gatewayText(live, config.hash)}\n`);
    const rows = [HEADS.map((head) => head.toUpperCase()), ...shown.map(rowOf)];
    await write(io.stdout, aligned(rows, HEADS.length));
    return 0;
  });
}

const HEADS = ['upstream', 'state', 'in flight', 'latency', 'last failure', 'credential', 'note'];

function rowOf(shown: Shown): string[] {
  const { upstream, state, drained } = shown;
  const note = drained === null ? [] : [drainText(drained)];
  if (!('targets' in shown)) return [upstream, state, '-', '-', '-', '-', note.join('')];
  const { health, in_flight, max_concurrency, last_failure: last, credential, targets } = shown;
  const latencies = targets.flatMap(({ latency_ms }) => latency_ms ?? []);
  if (health?.ok === false) note.push(`health check: ${health.reason ?? 'failed'}`);
  const open = targets.filter(({ breaker }) => breaker !== 'closed');
  if (open.length > 0)
    note.push(`breaker ${open[0]?.breaker.replace('_', ' ')} for ${open.length} of ${targets.length} models`);
  return [
    upstream,
    state,
    `${in_flight} of ${max_concurrency}`,
    latencies.length === 0 ? '-' : `${Math.round(Math.max(...latencies))} ms`,
    last === null ? '-' : `${last.code}, ${ageText(last.at)} ago`,
    credentialText(credential),
    note.join('; '),
  ];
}

function credentialText({ kind, since, expires_at }: UpstreamState['credential']): string {
  if (kind === 'none') return 'none';
  if (since === null) return 'not fetched';
  return `${kind} ${ageText(since)} ago${expires_at === null ? '' : `, expires ${expires_at}`}`;
}

async function show(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag' }, ['NAME']);
  return withStore(given, io, 'must exist', async (store, config) => {
    const name = requireUpstream(given, config.dynamic);
    const { live, shown } = await statesOf(config, store, io);
    const found = shown.find((each) => each.upstream === name);
    const processes = (live.replicas ?? []).map(({ id, configHash: config_hash, upstreams }) => ({
      id,
      config_hash,
      state: upstreams.find((each) => each.upstream === name) ?? null,
    }));
    if (given.flag('json')) {
      await write(io.stdout, `${JSON.stringify({ ...found, processes, silent: live.silent }, null, 2)}\n`);
      return 0;
    }
    const row = found === undefined ? [] : rowOf(found);
    const lines = row.map((cell, at) => `${(HEADS[at] ?? '').padEnd(14)}${cell === '' ? '-' : cell}`);
    const models = found !== undefined && 'targets' in found ? found.targets : [];
    for (const { model, state, in_flight, cool_down } of models) {
      const wait =
        cool_down === null ? '' : `, for another ${Math.ceil(cool_down.ms / 1000)}s (${cool_down.cause})`;
      lines.push(`${'model'.padEnd(14)}${model}: ${state}${wait}, ${in_flight} in flight`);
    }
    for (const { id, state } of processes)
      lines.push(`${'process'.padEnd(14)}${id}: ${state === null ? 'does not have it' : state.state}`);
    for (const id of live.silent) lines.push(`${'process'.padEnd(14)}${id}: no answer`);
    await write(io.stdout, `${lines.join('\n')}\n`);
    return 0;
  });
}

async function events(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { config: 'text', json: 'flag', upstream: 'text', limit: 'text' });
  const limit = Number(given.text('limit') ?? EVENTS);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_EVENTS)
    throw new UsageError(`--limit is a whole number from 1 to ${MAX_EVENTS}`);
  const upstream = given.text('upstream');
  return withStore(given, io, 'must exist', async (store) => {
    const found = await store.upstreams.events({ limit, ...(upstream !== undefined && { upstream }) });
    // Processes write their events with a delay.
    const shown = found.toReversed().sort((a, b) => (a.at < b.at ? -1 : Number(a.at > b.at)));
    const text = given.flag('json')
      ? `${JSON.stringify(shown, null, 2)}\n`
      : shown.map((event) => `${eventLine(event)}\n`).join('');
    await write(io.stdout, text);
    return 0;
  });
}

function eventLine({ at, upstream, model, what, reason, actor, replica }: UpstreamEvent): string {
  const where = model === null ? upstream : `${upstream} ${model}`;
  const by = actor ?? replica;
  return `${at}  ${where}: ${what}${reason === null ? '' : `: ${reason}`}${by === null ? '' : `  (${by})`}`;
}

async function drain(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, { ...CHANGE, for: 'text' }, ['NAME']);
  const now = Date.now();
  const end = given.text('for');
  const until = end === undefined ? null : readTime(end, '--for', now, 1);
  if (until !== null && Date.parse(until) <= now) throw new UsageError('--for is in the past');
  const about = { until, ...authorOf(given, io) };
  return withStore(given, io, 'must exist', async (store, config) => {
    const upstream = requireUpstream(given, config.dynamic);
    const row = { upstream, ...about };
    await store.upstreams.drain(row);
    const drains = await store.upstreams.drains();
    const alone = modelsWithoutTarget(config.dynamic, new Set(drains.map((each) => each.upstream)));
    if (alone.length > 0)
      await write(
        io.stderr,
        `Warning: no target is in service now for ${alone.join(', ')}: 503 upstream_out_of_service.\n`,
      );
    const what = `${upstream} is drained ${until === null ? 'until it is resumed' : `until ${until}`}.`;
    return announce(given, io, config, DRAIN, { upstream, drained: shownDrain(row) }, what);
  });
}

async function resume(argv: readonly string[], io: CommandIo): Promise<number> {
  const given = readArguments(argv, CHANGE, ['NAME']);
  const by = authorOf(given, io);
  return withStore(given, io, 'must exist', async (store, config) => {
    const name = given.operands[0] ?? '';
    // Also one that has left the configuration meanwhile.
    const ended = await store.upstreams.resume(name, by);
    if (ended === undefined) {
      const upstream = requireUpstream(given, config.dynamic);
      throw new Error(`${upstream} is not drained`);
    }
    if (config.dynamic.upstreams[name]?.enabled === false)
      await write(
        io.stderr,
        `Warning: ${name} has \`enabled: false\` in the configuration and gets no requests.\n`,
      );
    return announce(given, io, config, RESUME, { upstream: name, drained: null }, `${name} is resumed.`);
  });
}

async function announce(
  given: Arguments<'json'>,
  io: CommandIo,
  config: Config,
  action: FleetAction,
  fields: object,
  what: string,
): Promise<number> {
  await using fleet = await openFleet(config);
  const result = await fleet?.send(DRAINS_CHANGED, 'upstreams');
  return writeChange(given, io, result, action, {
    fields,
    text: `${what} ${broadcastText(result, action.many)}`,
  });
}

/** @throws Error that names the nearest upstream */
function requireUpstream(given: Arguments<never>, { upstreams }: DynamicConfig): string {
  const name = given.operands[0] ?? '';
  if (Object.hasOwn(upstreams, name)) return name;
  throw new Error(`there is no upstream of this name${didYouMean(name, Object.keys(upstreams))}`);
}

/** Models all of whose targets are out of service. */
function modelsWithoutTarget({ models, upstreams }: DynamicConfig, drained: ReadonlySet<string>): string[] {
  const isUsed = (target: DynamicConfig['models'][string]['targets'][number]) =>
    weightInUse(target) > 0 && upstreams[target.upstream]?.enabled !== false && !drained.has(target.upstream);
  return Object.entries(models).flatMap(([name, { targets }]) => (targets.some(isUsed) ? [] : [name]));
}
