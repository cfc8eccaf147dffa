"""Every rule accepts valid manifests, and reports at least one violation: a rule that cannot fail is useless."""

from typing import Any

import pytest

from tests.manifests.deployment import House
from tests.manifests.rules import RULES
from tests.manifests.valid_deployment import GONE, sound, spoilt

POD = "spec.template.spec"
SERVER = f"{POD}.containers.0"
NAME = "spec.template.metadata.labels.app~kubernetes~io/name"
OTHER_POOL = {"hugginggpt.dev/pool": "large"}
METRICS_OF_ALL = {"ports": [{"port": 9464}]}
METADATA = {"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}], "ports": [{"port": 80}]}
ANYONE = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]}

SPOILT: list[tuple[str, str, str, Any, str]] = [
    # pods and their containers
    ("containers_are_probed", "Deployment/planner", f"{SERVER}.livenessProbe", GONE, "liveness"),
    ("containers_are_probed", "Deployment/planner", f"{SERVER}.readinessProbe.grpc.service", "liveness", "readiness"),
    ("containers_are_probed", "Deployment/planner", f"{SERVER}.startupProbe.grpc.port", 50051, "startup"),
    ("containers_are_probed", "Deployment/planner", f"{SERVER}.ports.1.containerPort", 50053, "no port 50052"),
    ("resources_are_bounded", "Deployment/planner", f"{SERVER}.resources.limits.memory", GONE, "memory"),
    (
        "resources_are_bounded",
        "Deployment/planner",
        f"{SERVER}.resources.requests.ephemeral-storage",
        GONE,
        "ephemeral",
    ),
    ("resources_are_bounded", "Deployment/planner", f"{SERVER}.resources.requests.memory", "3Gi", "more memory"),
    ("resources_are_bounded", "Deployment/planner", f"{SERVER}.resources", GONE, "cpu"),
    ("memory_volumes_are_bounded", "Deployment/expert-text", f"{POD}.volumes.2.emptyDir.sizeLimit", GONE, "sizeLimit"),
    ("torch_has_shared_memory", "Deployment/expert-text", f"{SERVER}.volumeMounts.3", GONE, "/dev/shm"),
    ("torch_has_shared_memory", "Deployment/expert-text", f"{POD}.volumes.2.emptyDir.medium", GONE, "/dev/shm"),
    ("paths_written_are_volumes", "Deployment/planner", f"{SERVER}.volumeMounts.0", GONE, "/tmp"),
    ("paths_written_are_volumes", "Deployment/planner", f"{SERVER}.volumeMounts.1.readOnly", True, "/data"),
    ("mounts_have_volumes", "Deployment/planner", f"{POD}.volumes.0", GONE, "no volume"),
    ("mounts_have_volumes", "Deployment/planner", f"{SERVER}.volumeMounts.0", GONE, "nobody mounts"),
    # security
    ("pods_are_restricted", "Deployment/planner", f"{POD}.securityContext.runAsNonRoot", False, "runAsNonRoot"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.securityContext.runAsUser", 1000, "runAsUser"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.securityContext.seccompProfile", GONE, "seccomp"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.hostNetwork", True, "hostNetwork"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.volumes.0", {"name": "x", "hostPath": {}}, "hostPath"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext", GONE, "Escalation"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext.capabilities.drop", [], "dropped"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext.runAsUser", 1, "runAsUser"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext.privileged", True, "privileged"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.ports.0.hostPort", 50051, "port of the node"),
    ("pods_have_no_token", "Deployment/planner", f"{POD}.serviceAccountName", "default", "ServiceAccount default"),
    ("pods_have_no_token", "Deployment/planner", f"{POD}.automountServiceAccountToken", True, "not false"),
    ("pods_have_no_token", "ServiceAccount/planner", "automountServiceAccountToken", GONE, "not false"),
    ("nobody_has_rights", "ServiceAccount/planner", "kind", "RoleBinding", "rights"),
    ("namespaces_enforce_it", "Namespace/hugginggpt", "metadata.labels", {}, "enforce"),
    ("secrets_have_no_values", "ConfigMap/hugginggpt", "kind", "Secret", "has values"),
    ("secrets_stand_nowhere_else", "ConfigMap/hugginggpt", "data.LLM_API_KEY", "sk-1", "LLM_API_KEY"),
    ("secrets_stand_nowhere_else", "ConfigMap/hugginggpt", "data.DATABASE", "postgresql://a:b@c/d", "DATABASE"),
    (
        "secrets_stand_nowhere_else",
        "Deployment/planner",
        f"{SERVER}.env.0",
        {"name": "HF_TOKEN", "value": "hf_1"},
        "HF_TOKEN",
    ),
    ("stores_have_their_keys", "Deployment/expert-text", f"{SERVER}.envFrom.1.secretRef.optional", True, "keys"),
    ("stores_have_their_keys", "Deployment/gateway", f"{SERVER}.envFrom.1", GONE, "keys of the store"),
    # images
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.image", "hugginggpt/core:latest", "no exact version"),
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.image", "hugginggpt/core", "no exact version"),
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.image", "hugginggpt/core:0.0.9", "not of version"),
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.imagePullPolicy", "Always", "pulled"),
    ("images_run_what_they_hold", "Deployment/planner", f"{SERVER}.args.0", "experts.text", "experts.text"),
    ("images_run_what_they_hold", "Deployment/expert-text", f"{SERVER}.args.0", "experts.vision", "experts.vision"),
    ("images_run_what_they_hold", "Deployment/planner", f"{SERVER}.args", GONE, "module to run"),
    (
        "gpus_have_their_images",
        "Deployment/expert-text",
        f"{SERVER}.resources.limits.nvidia~com/gpu",
        GONE,
        "without GPU",
    ),
    # rollouts, disruptions, scaling
    ("every_workload_has_a_budget", "PodDisruptionBudget/planner", "spec.selector.matchLabels", {"x": "y"}, "0 Pod"),
    ("every_workload_has_a_budget", "PodDisruptionBudget/planner", "spec.maxUnavailable", 0, "no pod go"),
    ("budgets_are_of_one", "PodDisruptionBudget/planner", "spec.selector.matchLabels", {}, "6 workloads"),
    ("calls_may_end", "Deployment/planner", f"{SERVER}.lifecycle", GONE, "does not wait"),
    ("calls_may_end", "Deployment/planner", f"{POD}.terminationGracePeriodSeconds", 15, "killed after 15 s"),
    ("calls_may_end", "Deployment/expert-text", f"{SERVER}.env.0.value", "60", "drains for 60 s"),
    ("rollouts_are_safe", "Deployment/expert-text", "spec.strategy.rollingUpdate.maxSurge", 1, "GPU of an old one"),
    ("rollouts_are_safe", "Deployment/planner", "spec.strategy.rollingUpdate.maxUnavailable", 1, "no pod while"),
    ("gpus_are_asked_for_whole", "Deployment/expert-text", f"{POD}.runtimeClassName", GONE, "runtimeClassName"),
    ("gpus_are_asked_for_whole", "Deployment/expert-text", f"{POD}.nodeSelector", GONE, "pool"),
    (
        "gpus_are_asked_for_whole",
        "Deployment/expert-text",
        f"{POD}.nodeSelector",
        OTHER_POOL,
        "small",
    ),
    ("gpus_are_asked_for_whole", "Deployment/expert-text", f"{POD}.tolerations", [], "taint"),
    ("pods_are_spread", "Deployment/planner", f"{POD}.topologySpreadConstraints", [], "nothing spreads"),
    (
        "pods_are_spread",
        "Deployment/planner",
        f"{POD}.topologySpreadConstraints.0.labelSelector",
        {"matchLabels": {"app.kubernetes.io/part-of": "hugginggpt"}},
        "spread among",
    ),
    ("priorities_are_known", "Deployment/planner", f"{POD}.priorityClassName", "urgent", "urgent"),
    ("sleepy_experts_say_so", "Deployment/expert-text", f"{SERVER}.env.1.value", "false", "minReplicaCount of 0"),
    ("sleepy_experts_say_so", "Deployment/expert-text", f"{SERVER}.env.1.value", "false", "maxSurge is 0"),
    (
        "experts_are_scaled_by_their_own_demand",
        "ScaledObject/expert-text",
        "spec.triggers.0.metadata.query",
        'sum(expert_queue_depth{expert="vision"})',
        "vision",
    ),
    ("scalers_have_a_fallback", "ScaledObject/expert-text", "spec.fallback", GONE, "no fallback"),
    ("scalers_have_a_fallback", "ScaledObject/expert-text", "spec.fallback.behavior", GONE, "takes replicas away"),
    ("scalers_have_targets", "ScaledObject/expert-text", "spec.scaleTargetRef.name", "text", "no text"),
    ("scalers_have_targets", "Deployment/expert-text", "spec.replicas", 2, "undo"),
    # names and selectors
    ("selectors_match", "Deployment/planner", "spec.selector.matchLabels", {"a": "b"}, "its own pods"),
    ("selectors_match", "Deployment/planner", "spec.selector.matchLabels", {}, "selector matches the pods"),
    ("services_reach_pods", "Service/planner", "spec.selector", {"a": "b"}, "selects no pods"),
    ("services_reach_pods", "Service/planner", "spec.ports.0.targetPort", "door", "no port door"),
    ("services_reach_pods", "Service/planner", "spec.ports.0.port", 80, "no port 80"),
    ("services_reach_pods", "Service/planner", "spec.ports.0", {"port": 80, "targetPort": 50051}, "50051"),
    ("services_balance", "Service/planner", "spec.clusterIP", GONE, "stay with"),
    ("experts_are_found", "Service/experts", "spec.publishNotReadyAddresses", GONE, "not ready"),
    ("experts_are_found", "Service/experts", "spec.selector", {"a": "b"}, "0 select"),
    ("names_are_known", "Deployment/planner", f"{SERVER}.envFrom.0.configMapRef.name", "other", "ConfigMap other"),
    (
        "names_are_known",
        "Deployment/planner",
        f"{POD}.volumes.0",
        {"name": "tmp", "secret": {"secretName": "other"}},
        "Secret other",
    ),
    ("claims_can_be_shared", "PersistentVolumeClaim/models", "spec.accessModes", ["ReadWriteOnce"], "one node"),
    ("labels_are_recommended", "Service/planner", "metadata.labels", {}, "part of"),
    (
        "labels_are_recommended",
        "Deployment/planner",
        "spec.template.metadata.labels.app~kubernetes~io/component",
        GONE,
        "component",
    ),
    ("all_is_in_one_namespace", "Service/planner", "metadata.namespace", "default", "default"),
    # settings
    ("settings_are_read", "Deployment/selector", f"{SERVER}.env.0.name", "SELECTOR_EXPRETS", "SELECTOR_EXPRETS"),
    ("settings_are_read", "Deployment/selector", f"{SERVER}.env.0.name", "GATEWAY_SELECTOR", "GATEWAY_SELECTOR"),
    ("shared_settings_are_read", "ConfigMap/hugginggpt", "data.LOG_FROMAT", "json", "LOG_FROMAT"),
    ("settings_are_valid", "ConfigMap/hugginggpt", "data.LOG_FORMAT", "xml", "LOG_FORMAT"),
    ("programs_are_known", "Deployment/planner", f"{SERVER}.args.0", "services.poet", "services.poet"),
    ("ports_are_listened_on", "Deployment/planner", f"{SERVER}.ports.0.containerPort", 50055, "50055"),
    ("ports_are_listened_on", "ConfigMap/hugginggpt", "data.METRICS_LISTEN", "0.0.0.0:9465", "9465"),
    ("strangers_can_be_heard", "ConfigMap/hugginggpt", "data.HEALTH_LISTEN", "127.0.0.1:50052", "127.0.0.1"),
    ("addresses_exist", "Deployment/selector", f"{SERVER}.env.0.value", "dns:///expert:50051", "no such Service"),
    ("addresses_exist", "Deployment/selector", f"{SERVER}.env.0.value", "dns:///experts:50052", "the Service has"),
    ("addresses_exist", "Service/planner", "metadata.name", "planer", "planner leads to planner:50051"),
    ("addresses_exist", "ConfigMap/hugginggpt", "data.AWS_ENDPOINT_URL", "http://s3:8333", "AWS_ENDPOINT_URL"),
    ("orchestrators_reach_each_other", "Deployment/orchestrator", f"{SERVER}.env", [], "ORCHESTRATOR_ADDRESS"),
    ("the_gateway_asks_for_keys", "ConfigMap/hugginggpt", "data.GATEWAY_AUTHENTICATION", "none", "lets everybody in"),
    ("files_are_mounted", "Deployment/planner", f"{SERVER}.volumeMounts.2.mountPath", "/certificates", "TLS_KEY"),
    ("files_are_mounted", "Deployment/expert-text", f"{SERVER}.volumeMounts.4", GONE, "HF_HOME"),
    ("files_are_mounted", "Deployment/planner", f"{POD}.volumes.2.configMap", {"name": "hugginggpt"}, "no ConfigMap"),
    ("clients_look_anew", "ConfigMap/hugginggpt", "data.CONNECTION_SECONDS", GONE, "keeps connections"),
    ("weights_are_there", "ConfigMap/hugginggpt", "data.HF_HUB_OFFLINE", GONE, "ask the Hub"),
    ("settings_are_ours", "Deployment/planner", f"{POD}.enableServiceLinks", GONE, "enableServiceLinks"),
    # what extensions name
    ("routes_lead_to_services", "HTTPRoute/gateway", "spec.rules.0.backendRefs.0.port", 80, "no Service gateway"),
    ("routes_lead_to_services", "HTTPRoute/gateway", "spec.rules.0.backendRefs.0.name", "door", "no Service door"),
    ("routes_have_a_listener", "HTTPRoute/gateway", "spec.hostnames", ["other.example.org"], "no listener"),
    ("routes_have_a_listener", "HTTPRoute/gateway", "spec.parentRefs.0.sectionName", "https", "no listener"),
    ("monitors_read_ports", "PodMonitor/house", "spec.podMetricsEndpoints.0.port", "http", "no port http"),
    ("monitors_read_ports", "PodMonitor/house", "spec.selector.matchLabels", {"a": "b"}, "leaves out"),
    ("certificates_bear_the_name", "Certificate/hugginggpt", "spec.dnsNames", ["house"], "does not bear hugginggpt"),
    # the network
    ("all_is_denied_first", "NetworkPolicy/deny-all", "spec.policyTypes", ["Ingress"], "none denies"),
    (
        "calls_inside_are_the_documented_ones",
        "NetworkPolicy/everyone",
        "spec",
        {"podSelector": {}, "ingress": [{}], "egress": [{}]},
        "lets through gateway → planner:50051",
    ),
    (
        "calls_inside_are_the_documented_ones",
        "NetworkPolicy/planner-calls",
        "spec.egress",
        [],
        "stops planner → selector:50051",
    ),
    (
        "doors_are_the_documented_ones",
        "NetworkPolicy/gateway-is-called",
        "spec.ingress",
        [],
        "closed to outside on 8080",
    ),
    ("doors_are_the_documented_ones", "NetworkPolicy/everyone", "spec.ingress.0", METRICS_OF_ALL, "read its metrics"),
    ("doors_are_the_documented_ones", "NetworkPolicy/planner-is-called", "spec.ingress.1", {}, "outside on 50051"),
    ("names_can_be_resolved", "NetworkPolicy/everyone", "spec.egress", [], "cannot ask DNS"),
    ("few_call_abroad", "NetworkPolicy/orchestrator-calls", "spec.egress.1", ANYONE, "0.0.0.0/0"),
    ("few_call_abroad", "NetworkPolicy/everyone", "spec.egress.1", ANYONE, "Deployment/expert-text"),
    ("few_call_abroad", "NetworkPolicy/gateway-calls", "spec.egress.1.ports", GONE, "all ports"),
    ("nobody_asks_for_metadata", "NetworkPolicy/planner-calls", "spec.egress.1", ANYONE, "169.254.0.0/16"),
    ("nobody_asks_for_metadata", "NetworkPolicy/gateway-calls", "spec.egress.1", METADATA, "169.254.169.254/32"),
    ("nobody_asks_for_metadata", "NetworkPolicy/gateway-calls", "spec.egress.1", ANYONE, "10.0.0.0/8"),
    ("nobody_asks_for_metadata", "NetworkPolicy/planner-calls", "spec.egress.1", ANYONE, "168.63.129.16/32"),
    ("traces_have_a_way_out", "Deployment/planner", NAME, "opentelemetry-collector", "traces nowhere"),
    ("proxies_reach_the_gateway", "NetworkPolicy/proxy", "spec.ingress", [], "nobody may call its proxy"),
    ("proxies_reach_the_gateway", "NetworkPolicy/proxy", "spec.egress", [], "the gateway on 8080"),
    ("proxies_reach_the_gateway", "NetworkPolicy/proxy", "spec.podSelector.matchLabels", {"a": "b"}, "call its proxy"),
    ("policies_mean_someone", "NetworkPolicy/planner-calls", "spec.podSelector.matchLabels", {"a": "b"}, "no pods"),
]


@pytest.fixture(scope="module")
def house() -> House:
    return sound()


@pytest.mark.parametrize("rule", RULES)
def test_valid_manifests_keep_the_rule(rule: str, house: House) -> None:
    assert list(RULES[rule](house)) == []


@pytest.mark.parametrize(("rule", "document", "path", "value", "complaint"), SPOILT)
def test_violation_is_reported(rule: str, document: str, path: str, value: object, complaint: str) -> None:
    told = list(RULES[rule](spoilt(document, path, value)))
    assert any(complaint in each for each in told), told


def test_every_rule_has_a_violation() -> None:
    assert {rule for rule, *_ in SPOILT} == set(RULES)
