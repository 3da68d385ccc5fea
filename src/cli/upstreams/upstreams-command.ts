// `tollgate upstreams`: the states of upstreams over all processes, their history, and taking one out of service by hand. Drains and
// events are in the store; states come from running gateways.
import type { Config, DynamicConfig } from '../../config/schema/config-schema.ts';
import { weightInUse } from '../../config/schema/model-schema.ts';
import type { Store } from '../../store/store.ts';
import type { UpstreamEvent } from '../../store/upstream-record.ts';
import { DRAINS_CHANGED, isOver, shownDrain } from '../../upstream/state/drains.ts';
import type { UpstreamState } from '../../upstream/state/upstream-state.ts';
import { broadcastText, type FleetAction } from '../fleet-action.ts';
import { ageText, drainText, fetchLiveState, gatewayText, mergedStates } from '../live-state.ts';
import { authorOf, CHANGE_OPTIONS } from '../owners/owner-options.ts';
import { countUpTo, didYouMean, readTime, UsageError } from '../program/arguments.ts';
import { command, group, type Operand, SHOW_OPTIONS, text } from '../program/command.ts';
import { print, tableOf } from '../program/table.ts';
import { type CommandIo, write } from '../program/terminal.ts';
import { openFleet, withStore, writeChange } from '../support-desk.ts';

const UPSTREAM: Operand = { name: 'NAME', about: 'an upstream of the configuration' };
const DRAINING = { what: 'draining', cutOff: 'as soon as it reaches one of them' };
const DRAIN: FleetAction = { many: 'send it no new requests', one: 'stops', ...DRAINING };
const RESUME: FleetAction = { many: 'send it requests again', one: 'resumes', ...DRAINING };
/** Timeout of the request to a running gateway, in milliseconds. */
const TIMEOUT_MS = 2000;
const EVENTS = 50;
const MAX_EVENTS = 1000;

/** The state of one upstream, or why none is known. */
type Shown =
  | UpstreamState
  | {
      readonly upstream: string;
      readonly state: 'unknown' | 'drained' | 'disabled';
      readonly drained: UpstreamState['drained'];
    };

async function statesOf(config: Config, { upstreams }: Store, { desk }: CommandIo) {
  const [live, drains] = await Promise.all([fetchLiveState(config, TIMEOUT_MS, desk), upstreams.drains()]);
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

const list = command('list', 'show the state of each upstream, over all processes of the fleet', {
  options: SHOW_OPTIONS,
  examples: ['upstreams list', 'upstreams list --json'],
  run: (given, io) =>
    withStore(given, io, 'must exist', async (store, config) => {
      const { live, shown } = await statesOf(config, store, io);
      if (!given.json) await write(io.stderr, `${gatewayText(live, config.hash)}\n`);
      return print(io, given.json, shown, tableOf(HEADS, shown.map(rowOf), io));
    }),
});

const HEADS = ['upstream', 'state', 'in_flight', 'latency', 'last_failure', 'credential', 'note'];

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

const show = command('show', 'show an upstream with its models, and what each process reports', {
  operand: UPSTREAM,
  options: SHOW_OPTIONS,
  examples: ['upstreams show openai', 'upstreams show openai --json'],
  run: (given, io, operand) =>
    withStore(given, io, 'must exist', async (store, config) => {
      const name = requireUpstream(operand, config.dynamic);
      const { live, shown } = await statesOf(config, store, io);
      const found = shown.find((each) => each.upstream === name);
      const processes = (live.replicas ?? []).map(({ id, configHash: config_hash, upstreams }) => ({
        id,
        config_hash,
        state: upstreams.find((each) => each.upstream === name) ?? null,
      }));
      const row = found === undefined ? [] : rowOf(found);
      const lines = row.map(
        (cell, at) => `${(HEADS[at] ?? '').replace('_', ' ').padEnd(14)}${cell === '' ? '-' : cell}`,
      );
      const models = found !== undefined && 'targets' in found ? found.targets : [];
      for (const { model, state, in_flight, cool_down } of models) {
        const wait =
          cool_down === null ? '' : `, for another ${Math.ceil(cool_down.ms / 1000)}s (${cool_down.cause})`;
        lines.push(`${'model'.padEnd(14)}${model}: ${state}${wait}, ${in_flight} in flight`);
      }
      for (const { id, state } of processes)
        lines.push(`${'process'.padEnd(14)}${id}: ${state === null ? 'does not have it' : state.state}`);
      for (const id of live.silent) lines.push(`${'process'.padEnd(14)}${id}: no answer`);
      return print(io, given.json, { ...found, processes, silent: live.silent }, lines);
    }),
});

const events = command('events', 'list the last changes of states, oldest first', {
  options: {
    upstream: text('NAME', 'only of this upstream'),
    limit: {
      about: `how many; ${EVENTS} by default, at most ${MAX_EVENTS}`,
      value: 'N',
      initial: EVENTS,
      read: countUpTo(MAX_EVENTS, '--limit'),
    },
    ...SHOW_OPTIONS,
  },
  examples: ['upstreams events', 'upstreams events --upstream openai --limit 200 --json'],
  run: (given, io) => {
    const { upstream, limit } = given;
    return withStore(given, io, 'must exist', async (store) => {
      const found = await store.upstreams.events({ limit, upstream });
      // Processes write their events with a delay.
      const shown = found.toReversed().sort((a, b) => (a.at < b.at ? -1 : Number(a.at > b.at)));
      return print(io, given.json, shown, shown.map(eventLine));
    });
  },
});

function eventLine({ at, upstream, model, what, reason, actor, replica }: UpstreamEvent): string {
  const where = model === null ? upstream : `${upstream} ${model}`;
  const by = actor ?? replica;
  return `${at}  ${where}: ${what}${reason === null ? '' : `: ${reason}`}${by === null ? '' : `  (${by})`}`;
}

const drain = command(
  'drain',
  'take an upstream out of service: it gets no new requests, running ones finish',
  {
    operand: UPSTREAM,
    options: {
      for: text('TIME', 'such as 30m, or until a day; the default is until resume'),
      ...CHANGE_OPTIONS,
    },
    examples: ['upstreams drain openai --for 1h --reason maintenance'],
    run: (given, io, operand) => {
      const now = Date.now();
      const until = given.for === undefined ? null : readTime(given.for, '--for', now, 1);
      if (until !== null && Date.parse(until) <= now) throw new UsageError('--for is in the past');
      const about = { until, ...authorOf(given, io) };
      return withStore(given, io, 'must exist', async (store, config) => {
        const upstream = requireUpstream(operand, config.dynamic);
        const row = { upstream, ...about };
        await store.upstreams.drain(row);
        const drains = await store.upstreams.drains();
        const alone = modelsWithoutTarget(config.dynamic, new Set(drains.map((each) => each.upstream)));
        const warning = `Warning: no target is in service now for ${alone.join(', ')}: 503 upstream_out_of_service.\n`;
        if (alone.length > 0) await write(io.stderr, warning);
        const what = `${upstream} is drained ${until === null ? 'until it is resumed' : `until ${until}`}.`;
        return announce(given.json, io, config, DRAIN, { upstream, drained: shownDrain(row) }, what);
      });
    },
  },
);

const resume = command('resume', 'put an upstream back into service', {
  operand: UPSTREAM,
  options: CHANGE_OPTIONS,
  examples: ['upstreams resume openai'],
  run: (given, io, operand) => {
    const by = authorOf(given, io);
    return withStore(given, io, 'must exist', async (store, config) => {
      // Also one that has left the configuration meanwhile.
      const ended = await store.upstreams.resume(operand, by);
      if (ended === undefined) throw new Error(`${requireUpstream(operand, config.dynamic)} is not drained`);
      const warning = `Warning: ${operand} has \`enabled: false\` in the configuration and gets no requests.\n`;
      if (config.dynamic.upstreams[operand]?.enabled === false) await write(io.stderr, warning);
      const fields = { upstream: operand, drained: null };
      return announce(given.json, io, config, RESUME, fields, `${operand} is resumed.`);
    });
  },
});

async function announce(
  json: boolean,
  io: CommandIo,
  config: Config,
  action: FleetAction,
  fields: object,
  what: string,
): Promise<number> {
  await using fleet = await openFleet(config, io);
  const result = await fleet?.send(DRAINS_CHANGED, 'upstreams');
  const text = `${what} ${broadcastText(result, action.many)}`;
  return writeChange({ json }, io, result, action, { fields, text });
}

/** @throws Error that names the nearest upstream */
function requireUpstream(name: string, { upstreams }: DynamicConfig): string {
  if (Object.hasOwn(upstreams, name)) return name;
  throw new Error(`there is no upstream of this name${didYouMean(name, Object.keys(upstreams))}`);
}

/** Models all of whose targets are out of service. */
function modelsWithoutTarget({ models, upstreams }: DynamicConfig, drained: ReadonlySet<string>): string[] {
  const isUsed = (target: DynamicConfig['models'][string]['targets'][number]) =>
    weightInUse(target) > 0 && upstreams[target.upstream]?.enabled !== false && !drained.has(target.upstream);
  return Object.entries(models).flatMap(([name, { targets }]) => (targets.some(isUsed) ? [] : [name]));
}

export const UPSTREAMS = group('upstreams', 'states of upstreams, and taking one out of service', [
  list,
  show,
  events,
  drain,
  resume,
]);
