// What the calls of Node clients ask for.
import { z } from 'zod';
import { promptOf } from '../../types.ts';

/** The messages of a chat call. */
export const messagesOf = (call: string): { role: 'user'; content: string }[] => [
  { role: 'user', content: promptOf(call) },
];

/** The tool that the model is offered, as a JSON Schema. */
export const WEATHER_PARAMETERS = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
};

export const WEATHER = {
  type: 'function' as const,
  function: { name: 'get_weather', description: 'The weather of a city.', parameters: WEATHER_PARAMETERS },
};

/** The input of the same tool. */
export const WeatherInput = z.object({ city: z.string() });

/** The structure that the model answers in. */
export const CitySchema = z.object({ city: z.string(), country: z.string() });

export const CITY_FORMAT = {
  type: 'json_schema' as const,
  json_schema: {
    name: 'city',
    strict: true,
    schema: {
      type: 'object',
      properties: { city: { type: 'string' }, country: { type: 'string' } },
      required: ['city', 'country'],
      additionalProperties: false,
    },
  },
};

/** A recording: what is in it matters to no server of the comparison. */
export const recording = (): File =>
  new File([new Uint8Array(2_000)], 'recording.wav', { type: 'audio/wav' });
