"""The panels of the dashboards; make_dashboards.py writes them for Grafana. A panel is (title, unit, [(expression,
legend)]), a row a title with its panels. `$replica` selects replicas, `$model` models. tests/deploy/dashboards_test.py
checks that every expression parses and that a server has every metric; metrics without a panel are listed in
NOT_SHOWN."""

OF = 'model_name=~"$model",instance=~"$replica"'
AT = 'instance=~"$replica"'
RATE = "[$__rate_interval]"


def quantiles(metric, *levels):
    return [
        (f"histogram_quantile({level}, sum by (le) (rate({metric}_bucket{{{OF}}}{RATE})))", f"p{round(level * 100)}")
        for level in levels
    ]


def rate(metric, by, of=OF, more=""):
    return f"sum by ({by}) (rate({metric}{{{of}{more}}}{RATE}))"


SERVER = [
    (
        "Now",
        [
            (
                "Replicas",
                "short",
                [
                    ('count(up{job="tactus-replicas"} == 1) or vector(0)', "answer"),
                    ('count(up{job="tactus-replicas"})', "known"),
                ],
            ),
            (
                "Requests ended",
                "reqps",
                [(rate("vllm:request_success_total", "finished_reason"), "{{finished_reason}}")],
            ),
            ("Tokens generated", "short", [(rate("vllm:generation_tokens_total", "instance"), "{{instance}}")]),
            ("Prompt tokens computed", "short", [(rate("vllm:prompt_tokens_total", "instance"), "{{instance}}")]),
            ("Running sequences", "short", [(f"vllm:num_requests_running{{{OF}}}", "{{instance}}")]),
            ("Waiting sequences", "short", [(f"vllm:num_requests_waiting{{{OF}}}", "{{instance}}")]),
        ],
    ),
    (
        "Latency",
        [
            ("Time to first token", "s", quantiles("vllm:time_to_first_token_seconds", 0.5, 0.9, 0.99)),
            ("Gap between tokens, all gaps", "s", quantiles("vllm:inter_token_latency_seconds", 0.5, 0.9, 0.99)),
            ("Whole request", "s", quantiles("vllm:e2e_request_latency_seconds", 0.5, 0.9, 0.99)),
            ("Time in the queue", "s", quantiles("vllm:request_queue_time_seconds", 0.5, 0.9, 0.99)),
            ("Prompt", "s", quantiles("vllm:request_prefill_time_seconds", 0.5, 0.9, 0.99)),
            ("Answer", "s", quantiles("vllm:request_decode_time_seconds", 0.5, 0.9, 0.99)),
            ("Prompt and answer", "s", quantiles("vllm:request_inference_time_seconds", 0.5, 0.9, 0.99)),
            ("Prompt length", "short", quantiles("vllm:request_prompt_tokens", 0.5, 0.99)),
            (
                "Answer length",
                "short",
                [
                    *quantiles("vllm:request_generation_tokens", 0.5, 0.99),
                    *(
                        (expression, f"{legend} allowed")
                        for expression, legend in quantiles("vllm:request_params_max_tokens", 0.5, 0.99)
                    ),
                ],
            ),
        ],
    ),
    (
        "Objectives",
        [
            (
                "Attainment by class",
                "percentunit",
                [
                    (
                        rate("tactus_slo_requests_total", "class", more=',kept="true"')
                        + " / ("
                        + rate("tactus_slo_requests_total", "class")
                        + " > 0)",
                        "{{class}}",
                    )
                ],
            ),
            ("Goodput by class", "reqps", [(rate("tactus_slo_goodput_requests_total", "class"), "{{class}}")]),
            (
                "Misses by cause",
                "reqps",
                [(rate("tactus_slo_misses_total", "objective, cause"), "{{objective}}: {{cause}}")],
            ),
            (
                "Slack, 10th percentile",
                "percentunit",
                [
                    (
                        (
                            "histogram_quantile(0.1, sum by (le, class, objective)"
                            f" (rate(tactus_slo_slack_ratio_bucket{{{OF}}}{RATE})))"
                        ),
                        "{{class}} {{objective}}",
                    )
                ],
            ),
            ("Rejected", "reqps", [(rate("tactus_requests_rejected_total", "instance"), "{{instance}}")]),
            (
                "Time to first token / predicted (gate)",
                "none",
                quantiles("tactus_ttft_measured_to_predicted", 0.5, 0.9),
            ),
        ],
    ),
    (
        "Steps",
        [
            ("Step time", "s", quantiles("tactus_step_seconds", 0.5, 0.99)),
            ("Steps", "short", [(rate("tactus_steps_total", "instance"), "{{instance}}")]),
            ("Tokens per step", "short", quantiles("vllm:iteration_tokens_total", 0.5, 0.99)),
            ("Token budget used", "percentunit", [(f"tactus_token_budget_utilization{{{OF}}}", "{{instance}}")]),
            ("Measured / predicted step time", "none", quantiles("tactus_step_measured_to_predicted", 0.05, 0.5, 0.95)),
            ("Correction of step times", "none", [(f"tactus_step_time_correction{{{OF}}}", "{{instance}}")]),
            ("Time to plan a step", "s", [(f"tactus_decision_seconds{{{OF}}}", "{{instance}} p{{quantile}}")]),
            (
                "Draft tokens",
                "short",
                [
                    (rate("tactus_draft_tokens_total", "source"), "{{source}} verified"),
                    (rate("tactus_accepted_draft_tokens_total", "source"), "{{source}} accepted"),
                ],
            ),
            (
                "Failed and stuck steps",
                "short",
                [
                    (f"increase(tactus_executor_errors_total{{{OF}}}{RATE})", "{{instance}} failed"),
                    (f"tactus_step_stuck{{{AT}}}", "{{instance}} stuck"),
                ],
            ),
        ],
    ),
    (
        "KV memory",
        [
            ("In use", "percentunit", [(f"vllm:kv_cache_usage_perc{{{OF}}}", "{{instance}}")]),
            (
                "Blocks",
                "short",
                [
                    (f"sum(tactus_kv_blocks_in_use{{{OF}}})", "in use"),
                    (f"sum(tactus_kv_blocks_cached{{{OF}}})", "cached"),
                    (f"sum(tactus_kv_blocks{{{OF}}})", "all"),
                ],
            ),
            (
                "Prompt tokens found in the prefix cache",
                "percentunit",
                [
                    (
                        (
                            f"{rate('vllm:prefix_cache_hits_total', 'instance')} /"
                            f" ({rate('vllm:prefix_cache_queries_total', 'instance')} > 0)"
                        ),
                        "{{instance}}",
                    )
                ],
            ),
            (
                "Prompt cache on disk",
                "bytes",
                [
                    (f"tactus_disk_kv_bytes{{{OF}}}", "{{instance}}"),
                    (f"tactus_disk_kv_bytes_limit{{{OF}}}", "{{instance}}: limit"),
                ],
            ),
            ("Disk accepts blocks (0: full)", "short", [(f"tactus_disk_kv_writing{{{OF}}}", "{{instance}}")]),
            (
                "Blocks read from and written to disk",
                "short",
                [
                    (rate("tactus_disk_kv_read_blocks_total", "instance"), "{{instance}} read"),
                    (rate("tactus_disk_kv_written_blocks_total", "instance"), "{{instance}} written"),
                    (rate("tactus_disk_kv_damaged_blocks_total", "instance"), "{{instance}} damaged"),
                ],
            ),
            ("Preemptions", "short", [(rate("vllm:num_preemptions_total", "instance"), "{{instance}}")]),
            ("Recomputed tokens", "short", [(rate("tactus_recomputed_tokens_total", "instance"), "{{instance}}")]),
            ("Swapped sequences", "short", [(rate("tactus_swapped_sequences_total", "instance"), "{{instance}}")]),
            (
                "Swapped blocks",
                "short",
                [
                    (rate("tactus_swapped_out_blocks_total", "instance"), "{{instance}} out"),
                    (rate("tactus_swapped_in_blocks_total", "instance"), "{{instance}} in"),
                ],
            ),
            (
                "Swap space used",
                "short",
                [
                    (f"tactus_swap_blocks_used{{{OF}}}", "{{instance}}"),
                    (f"tactus_swap_blocks{{{OF}}}", "{{instance}}: total"),
                ],
            ),
            ("Sequences moved", "short", [(rate("tactus_migrated_sequences_total", "direction"), "{{direction}}")]),
            (
                "Blocks sent to other replicas",
                "short",
                [(rate("tactus_migrated_out_blocks_total", "instance"), "{{instance}}")],
            ),
        ],
    ),
    (
        "HTTP",
        [
            ("Answers by status", "reqps", [(rate("tactus_http_responses_total", "code", AT), "{{code}}")]),
            ("Connections", "short", [(f"tactus_http_connections{{{AT}}}", "{{instance}}")]),
            ("Requests in progress", "short", [(f"tactus_http_exchanges{{{AT}}}", "{{instance}}")]),
            (
                "New connections",
                "short",
                [
                    (rate("tactus_http_connections_total", "instance", AT), "{{instance}}"),
                    (rate("tactus_http_connections_refused_total", "instance", AT), "{{instance}} refused"),
                ],
            ),
            (
                "Clients that disconnected early",
                "reqps",
                [(rate("tactus_http_client_gone_total", "instance", AT), "{{instance}}")],
            ),
            (
                "Unparsed request bodies",
                "bytes",
                [
                    (f"tactus_http_body_bytes{{{AT}}}", "{{instance}}"),
                    (f"tactus_http_body_bytes_limit{{{AT}}}", "{{instance}}: limit"),
                ],
            ),
            ("Bodies refused", "reqps", [(rate("tactus_http_bodies_refused_total", "instance", AT), "{{instance}}")]),
        ],
    ),
    (
        "Files and batches",
        [
            ("Batches", "short", [(f"sum by (status) (tactus_batches{{{AT}}})", "{{status}}")]),
            ("Running batches", "short", [(f"tactus_batches_running{{{AT}}}", "{{instance}}")]),
            ("Lines", "short", [(rate("tactus_batch_lines_total", "result", AT), "{{result}}")]),
            (
                "Files",
                "bytes",
                [
                    (f"tactus_files_bytes{{{AT}}}", "{{instance}}"),
                    (f"tactus_files_uploading_bytes{{{AT}}}", "{{instance}}: arriving"),
                    (f"tactus_files_bytes_limit{{{AT}}}", "{{instance}}: quota"),
                ],
            ),
        ],
    ),
]
NOT_SHOWN = {
    "vllm:cache_config_info": "settings, for gateways",
    "vllm:lora_requests_info": "constant; for vLLM's dashboards and gateways",
    "vllm:request_params_n": "1 for almost all requests; for vLLM's dashboards",
    "tactus_token_budget": "a setting",
    "tactus_kv_utilization": "a mean since the start; vllm:kv_cache_usage_perc is the current value",
    "tactus_slo_attainment": "since the start; tactus_slo_requests_total has a rate",
    "tactus_predicted_step_seconds_total": "tactus_step_measured_to_predicted shows more",
    "tactus_measured_step_seconds_total": "tactus_step_measured_to_predicted shows more",
    "vllm:spec_decode_num_drafts_total": "tactus_draft_tokens_total has sources",
    "vllm:spec_decode_num_draft_tokens_total": "tactus_draft_tokens_total has sources",
    "vllm:spec_decode_num_accepted_tokens_total": "tactus_accepted_draft_tokens_total has sources",
    "tactus_disk_kv_blocks": "the limit is in bytes",
    "tactus_disk_kv_requests_total": "blocks read show more",
    "tactus_disk_kv_evicted_blocks_total": "bytes compared with the limit show the same",
    "tactus_files": "the limit is in bytes",
}

# Routers, endpoint pickers and migrations; deploy/prometheus/fleet_metrics.json lists their metrics.
FLEET = [
    (
        "Router",
        [
            ("Answers by status", "reqps", [(rate("tactus_route_requests_total", "code", AT), "{{code}}")]),
            ("Requests by replica", "reqps", [(rate("tactus_route_requests_total", "replica", AT), "{{replica}}")]),
            ("Requests in flight", "short", [(f"sum by (replica) (tactus_route_in_flight{{{AT}}})", "{{replica}}")]),
            ("Replicas by state", "short", [(f"max by (state) (tactus_route_replicas{{{AT}}})", "{{state}}")]),
            (
                "Retries, hedges",
                "reqps",
                [
                    (rate("tactus_route_retries_total", "instance", AT), "{{instance}} retries"),
                    (rate("tactus_route_hedges_total", "instance", AT), "{{instance}} hedges"),
                ],
            ),
            (
                "Replica ejections",
                "short",
                [(f"sum by (replica) (increase(tactus_route_ejections_total{{{AT}}}{RATE}))", "{{replica}}")],
            ),
            (
                "Replica failures",
                "reqps",
                [(rate("tactus_route_replica_failures_total", "replica", AT), "{{replica}}")],
            ),
            ("Answers cut off", "reqps", [(rate("tactus_route_cut_streams_total", "instance", AT), "{{instance}}")]),
            (
                "Running sequences, reported by replicas",
                "short",
                [(f"max by (replica) (tactus_route_replica_running{{{AT}}})", "{{replica}}")],
            ),
            (
                "Waiting requests, reported by replicas",
                "short",
                [(f"max by (replica) (tactus_route_replica_waiting{{{AT}}})", "{{replica}}")],
            ),
            (
                "Free KV tokens, reported by replicas",
                "short",
                [(f"min by (replica) (tactus_route_replica_free_kv_tokens{{{AT}}})", "{{replica}}")],
            ),
            (
                "Time to choose a replica",
                "s",
                [
                    (
                        (
                            f"histogram_quantile({level}, sum by (le)"
                            f" (rate(tactus_route_decision_seconds_bucket{{{AT}}}{RATE})))"
                        ),
                        f"p{round(level * 100)}",
                    )
                    for level in (0.5, 0.99)
                ],
            ),
        ],
    ),
    (
        "Endpoint picker",
        [
            ("Requests ended", "reqps", [(rate("tactus_epp_ended_total", "outcome", AT), "{{outcome}}")]),
            ("Requests refused", "reqps", [(rate("tactus_epp_refused_total", "reason", AT), "{{reason}}")]),
            (
                "Requests in flight",
                "short",
                [
                    (f"tactus_epp_requests_in_flight{{{AT}}}", "{{instance}}"),
                    (f"tactus_epp_streams{{{AT}}}", "{{instance}}: including waiting ones"),
                ],
            ),
            (
                "Ready replicas",
                "short",
                [(f"sum by (instance) (tactus_epp_endpoint_ready{{{AT}}})", "{{instance}}")],
            ),
            (
                "Served by another replica than chosen",
                "reqps",
                [(rate("tactus_epp_moved_total", "instance", AT), "{{instance}}")],
            ),
            ("Incomplete request bodies", "bytes", [(f"tactus_epp_body_bytes{{{AT}}}", "{{instance}}")]),
            (
                "Time to pick",
                "s",
                [
                    (
                        (
                            f"histogram_quantile({level}, sum by (le)"
                            f" (rate(tactus_epp_pick_seconds_bucket{{{AT}}}{RATE})))"
                        ),
                        f"p{round(level * 100)}",
                    )
                    for level in (0.5, 0.99)
                ],
            ),
        ],
    ),
    (
        "Migrations",
        [
            (
                "Migrations, by action of replicas",
                "short",
                [(rate("tactus_fleet_migrations_total", "what", AT), "{{what}}")],
            ),
            (
                "Migrations, by result at the router",
                "short",
                [(rate("tactus_route_migrations_total", "result", AT), "{{result}}")],
            ),
            ("KV sent", "Bps", [(rate("tactus_fleet_sent_kv_bytes_total", "instance", AT), "{{instance}}")]),
            (
                "Arrived sequences that were never claimed",
                "short",
                [(rate("tactus_fleet_tickets_expired_total", "instance", AT), "{{instance}}")],
            ),
        ],
    ),
]
