// Migration 12: notices of budgets.
import type { Migration } from './migration.ts';

const BUDGETS: Migration = {
  id: 12,
  name: 'budgets',
  statements: ({ text, integer, id, table }) => [
    `create table budget_notices (
       id ${id},
       scope ${text} not null,
       period ${text} not null,
       budget ${integer} not null,
       threshold integer not null,
       at ${text} not null,
       body text,
       due_at ${text},
       attempts integer not null default 0,
       unique (scope, period, budget, threshold)
     )${table}`,
    `create index budget_notices_by_due on budget_notices (due_at)`,
    `create index budget_notices_by_time on budget_notices (at)`,
  ],
};

export const BUDGETS_MIGRATIONS = [BUDGETS];
