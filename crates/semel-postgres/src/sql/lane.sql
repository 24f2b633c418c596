-- Names the lane to its session, or behind a pooler ($4: local) to its transaction, so that the statements below need
-- no arguments and travel with BEGIN and COMMIT in one request each. Locks nothing.
SELECT set_config('semel.consumer', $1, $4),
       set_config('semel.instance', $2, $4),
       set_config('semel.lane', $3, $4)
