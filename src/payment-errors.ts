// The errors of pages, orders and payments, as a part of the table in errors.ts. It holds no text of a provider's.

const BAD = 'invalid_request_error';

export const PAYMENT_ERRORS = {
  cross_origin_form: {
    status: 403,
    type: 'request_forbidden',
    retry: 'no',
    message: 'This form may only be sent from its own site.',
    meaning: 'A browser posted a form of the pricing pages from another origin.',
  },
  unknown_host: {
    status: 421,
    type: 'request_forbidden',
    retry: 'no',
    message: 'This page is not published under this name.',
    meaning: 'A page, or a checkout, was asked for under a name in `Host` that is not of `public_url`.',
  },
  invalid_event: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The event cannot be used.',
    meaning: 'A signed event of the payment provider that is no event, or of the other mode (test or live).',
  },
  invalid_signature: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The signature of the event is not valid.',
    meaning:
      'An event of the payment provider without a good signature, or signed more than five minutes ago or ahead.',
  },
  claim_forbidden: {
    status: 403,
    type: 'request_forbidden',
    retry: 'no',
    message: 'This browser did not make the order, or the order does not exist.',
    meaning:
      'A key is handed out to the browser that ordered it, by its cookie. The address of the order alone gives nothing.',
  },
  unknown_order: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'There is no such order.',
    meaning: 'The address names a session of payment that this gateway has no order for.',
  },
  already_entitled: {
    status: 409,
    type: BAD,
    retry: 'no',
    message: 'This key has that tier, or a higher one, already.',
    meaning: 'An upgrade was ordered to a tier that is no upgrade.',
  },
  order_closed: {
    status: 409,
    type: BAD,
    retry: 'no',
    message: 'No key is given out for this order any more.',
    meaning:
      'Its key was given out and used, or more than 30 minutes ago; or the order expired, failed, was refunded or is disputed.',
  },
  order_not_paid: {
    status: 409,
    type: BAD,
    retry: 'default',
    message: 'The order is not paid yet.',
    meaning: 'A key was asked for before the payment provider said that it is paid. It may be in a moment.',
  },
  order_limit: {
    status: 429,
    type: 'requests',
    retry: 'wait',
    message: 'Too many orders came from this address. Wait a moment.',
    meaning: 'More than ten orders in a minute from one address (IPv6: one /64).',
  },
  payment_unavailable: {
    status: 503,
    type: 'service_unavailable_error',
    retry: 'wait',
    message: 'The payment provider cannot be reached at the moment. Nothing was charged.',
    meaning:
      'Opening or checking a payment needs the provider, and it did not answer in time; or it refuses what the operator configured (then `x-should-retry: false`).',
  },
} as const;
