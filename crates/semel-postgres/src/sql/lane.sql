-- Names the lane to its session, so that the statements below need no arguments and travel with BEGIN and COMMIT
-- in one request each. Locks nothing.
SELECT set_config('semel.consumer', $1, false),
       set_config('semel.instance', $2, false),
       set_config('semel.lane', $3, false)
