// Calls of the API that read everything else: configuration, usage, upstreams, orders and events.
import { z } from 'zod';
import { TIERS } from '../../config/schema/config-schema.ts';
import type { OperatorEvent } from '../../store/operator-record.ts';
import { argvOf, commandJson, done } from '../command-runner.ts';
import { JsonText } from '../console-answer.ts';
import { operatorFields } from '../operator-tokens.ts';
import { orderFields, tierFields } from '../record-fields.ts';
import { showRoute, upstreamRecords } from './api-records.ts';
import { PAGE, pageOf, reading, readPage } from './api-route.ts';
import {
  nearBudget,
  operator,
  operatorEvent,
  order,
  orderState,
  tier,
  upstream,
  upstreamEvent,
} from './api-schemas.ts';
import { labelFilter } from './owner-routes.ts';

const OPERATORS = 1000;
const idCursor = z.strictObject({ id: z.number() });

function eventFields({ digest: _digest, requestKey: _key, before, after, ...event }: OperatorEvent) {
  return {
    ...event,
    before: before === null ? null : JSON.parse(before),
    after: after === null ? null : JSON.parse(after),
  };
}

export const REPORT_ROUTES = [
  reading({
    path: '/tiers',
    name: 'tiers.list',
    about: 'The tiers of the configuration in force, with their limits.',
    answer: z.strictObject({ items: z.array(z.looseObject({ tier })) }),
    run: async ({ desk }) => {
      const { tiers } = desk.config().dynamic;
      return {
        items: TIERS.flatMap((name) =>
          tiers[name] === undefined ? [] : [{ tier: name, ...tierFields(tiers[name]) }],
        ),
      };
    },
  }),
  reading({
    path: '/routes',
    name: 'routes.list',
    about: 'The models of the configuration in force, and where their requests go.',
    answer: z.strictObject({
      config: z.strictObject({ hash: z.string() }),
      items: z.array(
        z.strictObject({
          model: z.string(),
          tiers: z.array(tier),
          endpoints: z.array(z.string()),
          targets: z.array(
            z.strictObject({
              upstream: z.string(),
              model: z.string(),
              weight: z.number(),
              priority: z.number(),
            }),
          ),
        }),
      ),
    }),
    run: async ({ desk }) => {
      const { hash, dynamic } = desk.config();
      const items = Object.entries(dynamic.models).map(([model, { tiers, endpoints, targets }]) => ({
        model,
        tiers,
        endpoints,
        targets: targets.map(({ upstream: name, model: target, weight, priority }) => ({
          upstream: name,
          model: target,
          weight,
          priority,
        })),
      }));
      return { config: { hash }, items };
    },
  }),
  reading({
    path: '/explain',
    name: 'explain',
    about: 'Where a request for a model would go now, and with which limits: `tollgate explain --json`.',
    query: z.strictObject({
      model: z.string().min(1).max(1000),
      tier: tier.optional(),
      key: z.string().optional(),
    }),
    answer: z.looseObject({ model: z.string() }),
    run: async ({ desk, query }) =>
      z.looseObject({}).parse(await commandJson(desk, argvOf(['explain'], null, { ...query, json: true }))),
  }),
  reading({
    path: '/budgets',
    name: 'budgets.list',
    about:
      'Budgets of the present day and month near their end, the nearest first: beyond a soft threshold or four fifths. At most fifty, of the latest to get there.',
    answer: z.strictObject({ currency: z.string().nullable(), items: z.array(nearBudget) }),
    run: async ({ desk }) => ({
      currency: desk.config().dynamic.currency ?? null,
      items: await desk.budgets.current(),
    }),
  }),
  reading({
    path: '/usage',
    name: 'usage.report',
    about: 'Sums of usage by up to three groups: `tollgate usage --json`.',
    query: z.strictObject({
      by: z.string().optional().describe('Groups with commas, such as `day,model`.'),
      since: z.string().optional().describe('Such as `7d` or `2030-01-31`.'),
      until: z.string().optional(),
      month: z.string().optional(),
      tier: tier.optional(),
      model: z.string().optional(),
      team: z.string().optional(),
      holder: z.string().optional(),
      key: z.string().optional(),
      label: labelFilter,
      limit: z.coerce.number().int().min(1).max(100_000).optional().describe('Maximum number of lines.'),
    }),
    answer: z.looseObject({
      from: z.string().describe('The first hour.'),
      to: z.string().describe('The last hour, which is included.'),
      by: z.string(),
      lines: z.array(z.looseObject({})),
      totals: z.looseObject({}).describe('Of all lines, also of those beyond the limit.'),
      truncated: z.boolean().describe('Whether there are more lines.'),
    }),
    run: async ({ desk, query: { label = [], ...query } }) => {
      const argv = argvOf(['usage'], null, { ...query, label: [label].flat(), json: true });
      return new JsonText((await done(desk, argv)).stdout);
    },
  }),
  reading({
    path: '/usage/months',
    name: 'usage.months',
    about: 'Months with usage, and when they were closed.',
    answer: z.strictObject({ items: z.array(z.looseObject({ month: z.string() })) }),
    run: async ({ desk }) => {
      const months = await commandJson(desk, argvOf(['usage', 'months'], null, { json: true }));
      return { items: z.array(z.looseObject({})).parse(months) };
    },
  }),
  reading({
    path: '/upstreams',
    name: 'upstreams.list',
    about: 'The states of all upstreams.',
    answer: z.strictObject({ items: z.array(upstream) }),
    run: async ({ desk }) => ({ items: await upstreamRecords(desk) }),
  }),
  showRoute('upstreams', 'The state of an upstream.'),
  reading({
    path: '/upstream-events',
    name: 'upstreams.events',
    about: 'Changes of the states of upstreams, newest first.',
    query: z.strictObject({ ...PAGE, upstream: z.string().optional() }),
    answer: pageOf(upstreamEvent),
    run: async ({ desk: { store }, query }) => {
      const page = await readPage(
        query,
        idCursor,
        (limit, after) => store.upstreams.events({ limit, upstream: query.upstream, before: after?.id }),
        ({ id }) => ({ id }),
        (event) => event,
      );
      // Processes write their events with a delay.
      return { ...page, items: page.items.toSorted((a, b) => (a.at < b.at ? 1 : -Number(a.at > b.at))) };
    },
  }),
  reading({
    path: '/orders',
    name: 'orders.list',
    about: 'Orders that cost something, oldest first.',
    query: z.strictObject({ ...PAGE, state: orderState.optional() }),
    answer: pageOf(order),
    run: ({ desk: { store }, query }) =>
      readPage(
        query,
        z.strictObject({ createdAt: z.string(), id: z.string() }),
        (limit, after) => store.billing.listOrders({ limit, state: query.state, after }),
        ({ createdAt, id }) => ({ createdAt, id }),
        orderFields,
      ),
  }),
  showRoute('orders', 'An order, by its id or that of its payment session.'),
  reading({
    path: '/events',
    name: 'events.list',
    role: 'support',
    about: 'What operators did, newest first.',
    query: z.strictObject({
      ...PAGE,
      actor: z.string().optional(),
      what: z.string().optional(),
      target: z.string().optional(),
    }),
    answer: pageOf(operatorEvent),
    run: ({ desk: { store }, query: { actor, what, target, ...page } }) =>
      readPage(
        page,
        idCursor,
        (limit, after) => store.operators.events({ limit, actor, what, target, before: after?.id }),
        ({ id }) => ({ id }),
        eventFields,
      ),
  }),
  reading({
    path: '/operators',
    name: 'operators.list',
    role: 'admin',
    about: 'The operators.',
    answer: z.strictObject({ items: z.array(operator) }),
    run: async ({ desk: { store } }) => ({
      items: (await store.operators.listOperators(OPERATORS)).map(operatorFields),
    }),
  }),
];
