-- The limits of one holder in Redis, each operation in one atomic step and by the clock of Redis. Which limit has refused,
-- and what clients read of it, is told by the process from the figures that this gives back (verdict.ts).
--
-- KEYS  1  hash, the window of a minute: s when it began (ms), r requests, t tokens
--       2  hash, totals: d day, r requests of it, m month, t tokens of it, e when counting began (µs), k whether what was
--          used before that is known (1) or not yet (0). What runs is in r and t: see 3.
--       3  sorted set, leases by the time when they expire (ms); a member is ID:WINDOW:TOKENS:BEGUN, the last in µs.
--          While there are totals, r has each lease that began on day d, and t the tokens of each that began in month m.
-- ARGV  1  length of a window, 2 of a lease (ms), 3 the operation:
--       reserve ID TOKENS RPM TPM RPD TPM_MONTH CONCURRENCY [KNOWN REQUESTS TOKENS]   -1: no such limit
--       change  MEMBER, then likewise: other tokens for a lease; its request and its place are not asked for again
--       peek    likewise; reserves nothing
--       enter   ID TOKENS AGE   a request that was admitted elsewhere AGE ms ago, and runs; nothing if it is known
--       settle  MEMBER|ID|'' TOKENS REQUESTS MODE AGE RECENT_REQUESTS RECENT_TOKENS
--               of a lease, by its ID where no answer told the rest. Where there is none (any more), by MODE: 'real' counts the
--               tokens alone, 'none' nothing, 'use' counts as without a lease: REQUESTS and TOKENS in the totals, the RECENT
--               ones, which are AGE ms old at most, in the window. REQUESTS -1: the request of the lease never was.
--       renew   MEMBER|ID …
local DAY = 86400000
local windowMs, leaseMs, operation = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- Lua would write large numbers with an exponent.
local function text(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- The lease with this id, where its other parts are not known: only after an answer that did not come.
local function find(member)
  if member == '' or string.find(member, ':', 1, true) then return member end
  for _, each in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    if string.sub(each, 1, #member + 1) == member .. ':' then return each end
  end
  return member
end

if operation == 'renew' then
  local renewed = 0
  for index = 4, #ARGV do
    renewed = renewed + redis.call('ZADD', KEYS[3], 'XX', 'CH', text(now + leaseMs), find(ARGV[index]))
  end
  if redis.call('PTTL', KEYS[3]) < leaseMs * 2 then redis.call('PEXPIRE', KEYS[3], leaseMs * 2) end
  return renewed
end

-- The civil month and day of month of a day since 1970, by eras of 400 years that begin in March. Months are numbered from the
-- year 0.
local function civil(day)
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local dayOfEra = shifted - era * 146097
  local yearOfEra = math.floor(
    (dayOfEra - math.floor(dayOfEra / 1460) + math.floor(dayOfEra / 36524) - math.floor(dayOfEra / 146096)) / 365
  )
  local dayOfYear = dayOfEra - (365 * yearOfEra + math.floor(yearOfEra / 4) - math.floor(yearOfEra / 100))
  local march = math.floor((5 * dayOfYear + 2) / 153)
  -- Years times 12 plus months, which run on from March, being 2.
  return (yearOfEra + era * 400) * 12 + march + 2, dayOfYear - math.floor((153 * march + 2) / 5) + 1
end

local day = math.floor(now / DAY)
local month, dayOfMonth = civil(day)

-- A field that is missing or is no count is 0. Nothing that has been counted is as large as that.
local function count(value)
  local number = tonumber(value or '')
  if number == nil or number ~= number or number < 0 or number > 1e17 then return 0 end
  return number
end

local function readLease(member)
  local window, tokens, begun = string.match(member, '^[^:]*:(%d+):(%d+):(%d+)$')
  local leaseDay = math.floor(count(begun) / 1000 / DAY)
  return {
    window = window,
    tokens = count(tokens),
    begun = count(begun),
    day = leaseDay,
    month = leaseDay == day and month or (civil(leaseDay)),
  }
end

-- What running requests have in the totals of a day and a month.
local function running(ofDay, ofMonth)
  local requests, tokens = 0, 0
  for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    local lease = readLease(member)
    if lease.day == ofDay then requests = requests + 1 end
    if lease.month == ofMonth then tokens = tokens + lease.tokens end
  end
  return requests, tokens
end

local held = redis.call('HMGET', KEYS[1], 's', 'r', 't')
local window = { start = count(held[1]), requests = count(held[2]), tokens = count(held[3]) }

local function keepWindow()
  redis.call('HSET', KEYS[1], 's', text(window.start), 'r', text(window.requests), 't', text(window.tokens))
  -- It ends by what stands in it; this is only so that nothing stays for ever.
  redis.call('PEXPIRE', KEYS[1], windowMs)
end

-- The clock was set back. The window must not last for longer than a window.
if window.start > now then
  window.start = now
  keepWindow()
end
if now - window.start >= windowMs then window = { start = 0, requests = 0, tokens = 0 } end

held = redis.call('HMGET', KEYS[2], 'd', 'r', 'm', 't', 'e', 'k')
local totals
local heldDay, heldMonth = tonumber(held[1] or ''), tonumber(held[3] or '')
if heldDay and heldMonth and heldDay <= day and heldMonth <= month then
  totals = {
    day = heldDay,
    requests = count(held[2]),
    month = heldMonth,
    tokens = count(held[4]),
    since = count(held[5]),
    known = held[6] == '1',
  }
  if totals.day < day or totals.month < month then
    local requests, tokens = running(day, month)
    if totals.day < day then totals.day, totals.requests = day, requests end
    if totals.month < month then totals.month, totals.tokens = month, tokens end
  end
end

-- At least the rest of the month and one day more.
local monthMs = (33 - dayOfMonth) * DAY

local function keepTotals()
  if not totals then return end
  redis.call(
    'HSET', KEYS[2], 'd', text(totals.day), 'r', text(totals.requests), 'm', text(totals.month),
    't', text(totals.tokens), 'e', text(totals.since), 'k', totals.known and '1' or '0'
  )
  redis.call('PEXPIRE', KEYS[2], monthMs)
end

-- Counts in the window that is open, or opens one that began at `start`.
local function countInWindow(start, requests, tokens)
  if window.start == 0 then window.start = start end
  window.requests, window.tokens = window.requests + requests, window.tokens + tokens
  keepWindow()
end

-- Puts other tokens where those of a lease were.
local function replace(lease, tokens, isHeld)
  local reserved = isHeld and lease.tokens or 0
  if window.start > 0 and lease.window == text(window.start) then
    window.tokens = math.max(0, window.tokens - reserved + tokens)
    keepWindow()
  end
  if totals then
    if lease.month ~= totals.month then reserved = 0 end
    totals.tokens = math.max(0, totals.tokens - reserved + tokens)
  end
end

-- @param start when its window began, if none is open
local function addLease(id, tokens, begun, start)
  if window.start == 0 then window.start = start end
  local member = id .. ':' .. text(window.start) .. ':' .. text(tokens) .. ':' .. text(begun)
  redis.call('ZADD', KEYS[3], text(now + leaseMs), member)
  -- As long as there are totals, what an expired lease holds of them is still to be taken back.
  redis.call('PEXPIRE', KEYS[3], math.max(leaseMs * 2, totals and monthMs or 0))
  return member
end

if operation == 'settle' then
  local member, tokens, requests, mode = find(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
  local isHeld = member ~= '' and redis.call('ZREM', KEYS[3], member) == 1
  if not isHeld and mode == 'none' then return 0 end
  if not isHeld and mode == 'use' then
    local age = tonumber(ARGV[8])
    if age < windowMs then countInWindow(now - age, tonumber(ARGV[9]), tonumber(ARGV[10])) end
    if totals then
      totals.requests, totals.tokens = totals.requests + requests, totals.tokens + tokens
      keepTotals()
    end
    return 1
  end
  local lease = readLease(member)
  replace(lease, tokens, isHeld)
  if isHeld and requests < 0 and lease.window == text(window.start) then
    window.requests = math.max(0, window.requests + requests)
    keepWindow()
  end
  if totals and lease.day == totals.day then
    if isHeld then
      if requests < 0 then totals.requests = math.max(0, totals.requests + requests) end
    elseif lease.begun < totals.since then
      -- Redis was emptied meanwhile, and the store had not heard of a request that ran.
      totals.requests = totals.requests + 1
    end
  end
  keepTotals()
  return 1
end

if operation == 'enter' then
  local id, tokens, age = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
  local member = find(id)
  if member ~= id then
    redis.call('ZADD', KEYS[3], text(now + leaseMs), member)
    return member
  end
  member = addLease(id, tokens, micros - age * 1000, now - age)
  local lease = readLease(member)
  if age < windowMs then countInWindow(window.start, 1, tokens) end
  if totals then
    if lease.day == totals.day then totals.requests = totals.requests + 1 end
    if lease.month == totals.month then totals.tokens = totals.tokens + tokens end
    keepTotals()
  end
  return member
end

-- Leases whose process is gone. Those that would last for longer than a lease were made before the clock was set back.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', text(now), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[3], member)
  replace(readLease(member), 0, true)
  keepTotals()
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. text(now + leaseMs), '+inf', 'LIMIT', 0, 100)) do
  redis.call('ZADD', KEYS[3], text(now + leaseMs), member)
end

local id, tokens = ARGV[4], tonumber(ARGV[5])
local perMinute, tokensPerMinute = tonumber(ARGV[6]), tonumber(ARGV[7])
local perDay, tokensPerMonth, concurrency = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

-- What the store says of the time before. What was settled since may not have reached it; what runs has not.
if ARGV[11] and (not totals or (not totals.known and ARGV[11] == '1')) then
  local requests, reserved = running(day, month)
  totals = totals or { day = day, requests = requests, month = month, tokens = reserved, since = micros }
  totals.requests = math.max(totals.requests - requests, tonumber(ARGV[12])) + requests
  totals.tokens = math.max(totals.tokens - reserved, tonumber(ARGV[13])) + reserved
  totals.known = ARGV[11] == '1'
  keepTotals()
end
if not totals and (perDay >= 0 or tokensPerMonth >= 0) then return {} end

local function within(value, limit)
  return limit < 0 or value <= limit
end

-- The lease that is to be changed, as far as it is there: it has its request and its place already.
local old = operation == 'change' and readLease(id) or nil
local isHeld = old and redis.call('ZSCORE', KEYS[3], id) or false
local one = old and 0 or 1
local inWindow = isHeld and old.window == text(window.start) and old.tokens or 0
local inMonth = isHeld and totals and old.month == totals.month and old.tokens or 0
local places = redis.call('ZCOUNT', KEYS[3], '(' .. text(now), '+inf')

local member, verdict = '', 0
if
  operation ~= 'peek'
  and (old or within(window.requests + 1, perMinute))
  and within(window.tokens - inWindow + tokens, tokensPerMinute)
  and (old or within(totals and totals.requests + 1 or 0, perDay))
  and within(totals and totals.tokens - inMonth + tokens or 0, tokensPerMonth)
  and (old or within(places + 1, concurrency))
then
  verdict = 1
  if isHeld then
    redis.call('ZREM', KEYS[3], id)
    replace(old, 0, true)
  end
  -- Where a lease that is to be changed has expired, its request runs all the same, and takes its place again.
  if not isHeld then places = places + 1 end
  member = addLease(string.match(id, '^[^:]*'), tokens, micros, now)
  countInWindow(now, one, tokens)
  if totals then
    local wasEmptied = old and not isHeld and old.begun < totals.since
    totals.requests = totals.requests + (wasEmptied and 1 or one)
    totals.tokens = totals.tokens + tokens
    keepTotals()
  end
end

return {
  verdict,
  now,
  window.start > 0 and window.start + windowMs - now or 0,
  window.requests,
  -- As texts: clients do not read the largest integers exactly.
  text(window.tokens),
  totals and totals.requests or 0,
  text(totals and totals.tokens or 0),
  places,
  (not totals or totals.known) and 1 or 0,
  member,
}
