"""Rules: each tells its complaints about a house, and none about a sound one."""

from collections.abc import Callable, Iterator

from tests.manifests.house import House
from tests.manifests.rules import (
    availability,
    images,
    network,
    probes,
    references,
    resources,
    scaling,
    secrets,
    security,
    settings,
)

Rule = Callable[[House], Iterator[str]]

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        availability.every_workload_has_a_budget,
        availability.budgets_are_of_one,
        availability.calls_may_end,
        availability.rollouts_are_safe,
        availability.gpus_are_asked_for_whole,
        availability.pods_are_spread,
        availability.priorities_are_known,
        images.images_are_pinned,
        images.images_run_what_they_hold,
        images.gpus_have_their_images,
        network.all_is_denied_first,
        network.calls_inside_are_the_documented_ones,
        network.doors_are_the_documented_ones,
        network.names_can_be_resolved,
        network.few_call_abroad,
        network.nobody_asks_for_metadata,
        network.policies_mean_someone,
        probes.containers_are_probed,
        references.selectors_match,
        references.services_reach_pods,
        references.services_balance,
        references.experts_are_found,
        references.scalers_have_targets,
        references.names_are_known,
        references.labels_are_recommended,
        references.all_is_in_one_namespace,
        resources.resources_are_bounded,
        resources.memory_volumes_are_bounded,
        resources.torch_has_shared_memory,
        resources.paths_written_are_volumes,
        resources.mounts_have_volumes,
        scaling.sleepy_experts_say_so,
        scaling.experts_are_scaled_by_their_own_demand,
        scaling.scalers_have_a_fallback,
        secrets.secrets_have_no_values,
        secrets.secrets_stand_nowhere_else,
        security.pods_are_restricted,
        security.containers_are_restricted,
        security.pods_have_no_token,
        security.nobody_has_rights,
        security.namespaces_enforce_it,
        settings.settings_are_read,
        settings.shared_settings_are_read,
        settings.settings_are_valid,
        settings.programs_are_known,
        settings.ports_are_listened_on,
        settings.strangers_can_be_heard,
        settings.addresses_exist,
        settings.orchestrators_reach_each_other,
    )
}
