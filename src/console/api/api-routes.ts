// All routes of the API.
import { z } from 'zod';
import { ROLES } from '../../store/operator-record.ts';
import { type ApiRoute, reading } from './api-route.ts';
import { CHANGE_ROUTES } from './change-routes.ts';
import { COMMAND_ROUTE } from './command-route.ts';
import { openApi } from './openapi.ts';
import { OPERATOR_ROUTES } from './operator-routes.ts';
import { OWNER_ROUTES } from './owner-routes.ts';
import { REPORT_ROUTES } from './report-routes.ts';

export const API_ROUTES: readonly ApiRoute[] = [
  reading({
    path: '/openapi.json',
    name: 'openapi',
    about: 'This API as an OpenAPI 3.1 document.',
    answer: z.looseObject({ openapi: z.literal('3.1.0') }),
    run: async () => openApi(API_ROUTES),
  }),
  reading({
    path: '/me',
    name: 'me',
    about: 'The operator who calls.',
    answer: z.strictObject({
      name: z.string(),
      role: z.enum(ROLES),
      via: z.enum(['token', 'session', 'sso']),
    }),
    run: async ({ operator: { name, role, via } }) => ({ name, role, via }),
  }),
  ...OWNER_ROUTES,
  ...REPORT_ROUTES,
  ...CHANGE_ROUTES,
  ...OPERATOR_ROUTES,
  COMMAND_ROUTE,
];
