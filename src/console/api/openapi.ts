// The OpenAPI 3.1 document, made from the schemas that validate.
import { z } from 'zod';
import { VERSION } from '../../package-files.ts';
import type { ApiRoute } from './api-route.ts';

const problem = z.looseObject({
  title: z.string(),
  status: z.number(),
  code: z.string().describe('Name of the error, such as `record_changed`.'),
  detail: z.string(),
  param: z.string().optional(),
});
const PROBLEM = {
  description: 'What went wrong (RFC 9457).',
  content: { 'application/problem+json': { schema: schemaOf(problem, 'output') } },
};

/** `/keys/:prefix` as `/keys/{prefix}`. */
export function openApiPath(path: string): string {
  return path.replaceAll(/:(\w+)/g, '{$1}');
}

export function openApi(routes: readonly ApiRoute[]) {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const each of routes) {
    const path = openApiPath(each.path);
    paths[path] = { ...paths[path], [each.method.toLowerCase()]: operationOf(each) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Tollgate admin API',
      version: VERSION,
      description:
        'Of the admin listener. Roles: viewer, support, admin; each may do what the ones before may.',
    },
    servers: [{ url: '/api/v1' }],
    security: [{ token: [] }, { session: [] }],
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer' },
        session: { type: 'apiKey', in: 'cookie', name: 'tollgate-console' },
      },
    },
    paths,
  };
}

function operationOf({ method, name, about, role, params, query, body, answer, record }: ApiRoute) {
  const isChange = method !== 'GET';
  const headers = [
    ...(isChange
      ? [header('Idempotency-Key', 'The same key and request get the same answer, and change nothing more.')]
      : []),
    ...(isChange && record !== undefined
      ? [header('If-Match', '`etag` of the record that was read; 412 if it has changed.')]
      : []),
  ];
  return {
    operationId: name,
    summary: about,
    description: `Needs the role ${role}.`,
    'x-role': role,
    parameters: [
      ...Object.entries(params).map(([each, form]) => ({
        name: each,
        in: 'path',
        required: true,
        schema: schemaOf(form, 'input'),
      })),
      ...Object.entries(query.shape).map(([each, form]) => ({
        name: each,
        in: 'query',
        required: false,
        schema: schemaOf(form, 'input'),
      })),
      ...headers,
    ],
    ...(body !== undefined && {
      requestBody: { content: { 'application/json': { schema: schemaOf(body, 'input') } } },
    }),
    responses: {
      200: { description: 'Done.', content: { 'application/json': { schema: schemaOf(answer, 'output') } } },
      default: PROBLEM,
    },
  };
}

function header(name: string, description: string) {
  return { name, in: 'header', required: false, description, schema: { type: 'string', maxLength: 255 } };
}

function schemaOf(schema: z.core.$ZodType, io: 'input' | 'output') {
  const { $schema: _draft, ...own } = z.toJSONSchema(schema, {
    io,
    unrepresentable: 'any',
    target: 'draft-2020-12',
  });
  return own;
}
