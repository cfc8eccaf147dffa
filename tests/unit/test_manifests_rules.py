"""Every rule accepts valid manifests, and reports at least one violation: a rule that cannot fail is useless."""

import copy
from typing import Any

import pytest

from tests.manifests.deployment import Manifests
from tests.manifests.rules import RULES
from tests.manifests.valid_deployment import REMOVED, corrupted_manifests, valid_manifests

POD = "spec.template.spec"
SERVER = f"{POD}.containers.0"
TRIGGER = "spec.triggers.0.metadata"
NAME = "spec.template.metadata.labels.app~kubernetes~io/name"
LARGE_ONLY = {"hugginggpt.dev/pool": "large"}
NOT_SMALL = [{"matchExpressions": [{"key": "hugginggpt.dev/pool", "operator": "NotIn", "values": ["small"]}]}]
METRICS_OF_ALL = {"ports": [{"port": 9464}]}
METADATA = {"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}], "ports": [{"port": 80}]}
ANY_ADDRESS = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]}

VIOLATIONS: list[tuple[str, str, str, Any, str]] = [
    # containers
    ("containers_have_probes", "Deployment/planner", f"{SERVER}.livenessProbe", REMOVED, "liveness"),
    ("containers_have_probes", "Deployment/planner", f"{SERVER}.readinessProbe.grpc.service", "liveness", "readiness"),
    ("containers_have_probes", "Deployment/planner", f"{SERVER}.startupProbe.grpc.port", 50051, "startup"),
    ("containers_have_probes", "Deployment/planner", f"{SERVER}.ports.1.containerPort", 50053, "no port 50052"),
    ("resources_are_bounded", "Deployment/planner", f"{SERVER}.resources.limits.memory", REMOVED, "memory"),
    (
        "resources_are_bounded",
        "Deployment/planner",
        f"{SERVER}.resources.requests.ephemeral-storage",
        REMOVED,
        "ephemeral",
    ),
    ("resources_are_bounded", "Deployment/planner", f"{SERVER}.resources.requests.memory", "3Gi", "more memory"),
    ("resources_are_bounded", "Deployment/planner", f"{SERVER}.resources", REMOVED, "cpu"),
    (
        "memory_volumes_are_bounded",
        "Deployment/expert-text",
        f"{POD}.volumes.2.emptyDir.sizeLimit",
        REMOVED,
        "sizeLimit",
    ),
    ("torch_has_shared_memory", "Deployment/expert-text", f"{SERVER}.volumeMounts.3", REMOVED, "/dev/shm"),
    ("torch_has_shared_memory", "Deployment/expert-text", f"{POD}.volumes.2.emptyDir.medium", REMOVED, "/dev/shm"),
    ("written_paths_are_volumes", "Deployment/planner", f"{SERVER}.volumeMounts.0", REMOVED, "/tmp"),
    ("written_paths_are_volumes", "Deployment/planner", f"{SERVER}.volumeMounts.1.readOnly", True, "/data"),
    ("mounts_and_volumes_match", "Deployment/planner", f"{POD}.volumes.0", REMOVED, "no volume"),
    ("mounts_and_volumes_match", "Deployment/planner", f"{SERVER}.volumeMounts.0", REMOVED, "not mounted"),
    # security
    ("pods_are_restricted", "Deployment/planner", f"{POD}.securityContext.runAsNonRoot", False, "runAsNonRoot"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.securityContext.runAsUser", 1000, "runAsUser"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.securityContext.seccompProfile", REMOVED, "seccomp"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.hostNetwork", True, "hostNetwork"),
    ("pods_are_restricted", "Deployment/planner", f"{POD}.volumes.0", {"name": "x", "hostPath": {}}, "hostPath"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext", REMOVED, "Escalation"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext.capabilities.drop", [], "dropped"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext.runAsUser", 1, "runAsUser"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.securityContext.privileged", True, "privileged"),
    ("containers_are_restricted", "Deployment/planner", f"{SERVER}.ports.0.hostPort", 50051, "a port of the node"),
    ("pods_mount_no_api_token", "Deployment/planner", f"{POD}.serviceAccountName", "default", "ServiceAccount default"),
    ("pods_mount_no_api_token", "Deployment/planner", f"{POD}.automountServiceAccountToken", True, "not false"),
    ("pods_mount_no_api_token", "ServiceAccount/planner", "automountServiceAccountToken", REMOVED, "not false"),
    ("no_rbac_rights_are_granted", "ServiceAccount/planner", "kind", "RoleBinding", "rights"),
    ("namespaces_enforce_restricted", "Namespace/hugginggpt", "metadata.labels", {}, "enforce"),
    ("secrets_have_no_values", "ConfigMap/hugginggpt", "kind", "Secret", "has values"),
    ("secrets_are_not_inlined", "ConfigMap/hugginggpt", "data.LLM_API_KEY", "sk-1", "LLM_API_KEY"),
    ("secrets_are_not_inlined", "ConfigMap/hugginggpt", "data.DATABASE", "postgresql://a:b@c/d", "DATABASE"),
    (
        "secrets_are_not_inlined",
        "Deployment/planner",
        f"{SERVER}.env.0",
        {"name": "HF_TOKEN", "value": "hf_1"},
        "HF_TOKEN",
    ),
    (
        "store_credentials_are_required",
        "Deployment/expert-text",
        f"{SERVER}.envFrom.1.secretRef.optional",
        True,
        "credentials",
    ),
    (
        "store_credentials_are_required",
        "Deployment/gateway",
        f"{SERVER}.envFrom.1",
        REMOVED,
        "credentials of the store",
    ),
    # images
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.image", "hugginggpt/core:latest", "no exact version"),
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.image", "hugginggpt/core", "no exact version"),
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.image", "hugginggpt/core:0.0.9", "not of version"),
    ("images_are_pinned", "Deployment/planner", f"{SERVER}.imagePullPolicy", "Always", "no repeated pull"),
    ("images_contain_the_module", "Deployment/planner", f"{SERVER}.args.0", "experts.text", "experts.text"),
    ("images_contain_the_module", "Deployment/expert-text", f"{SERVER}.args.0", "experts.vision", "experts.vision"),
    ("images_contain_the_module", "Deployment/planner", f"{SERVER}.args", REMOVED, "module to run"),
    (
        "gpu_containers_use_cuda_images",
        "Deployment/expert-text",
        f"{SERVER}.resources.limits.nvidia~com/gpu",
        REMOVED,
        "without GPU",
    ),
    # rollouts, disruptions, scaling
    (
        "workloads_have_disruption_budgets",
        "PodDisruptionBudget/planner",
        "spec.selector.matchLabels",
        {"x": "y"},
        "0 Pod",
    ),
    ("workloads_have_disruption_budgets", "PodDisruptionBudget/planner", "spec.maxUnavailable", 0, "no eviction"),
    (
        "disruption_budgets_select_one_workload",
        "PodDisruptionBudget/planner",
        "spec.selector.matchLabels",
        {},
        "6 workloads",
    ),
    ("grace_periods_cover_draining", "Deployment/planner", f"{SERVER}.lifecycle", REMOVED, "no preStop sleep"),
    (
        "grace_periods_cover_draining",
        "Deployment/planner",
        f"{POD}.terminationGracePeriodSeconds",
        15,
        "killed after 15 s",
    ),
    ("grace_periods_cover_draining", "Deployment/expert-text", f"{SERVER}.env.0.value", "60", "drains for 60 s"),
    ("rollouts_are_safe", "Deployment/expert-text", "spec.strategy.rollingUpdate.maxSurge", 1, "GPU of an old one"),
    (
        "rollouts_are_safe",
        "Deployment/planner",
        "spec.strategy.rollingUpdate.maxUnavailable",
        1,
        "no pod may be available during",
    ),
    ("gpu_pods_select_gpu_nodes", "Deployment/expert-text", f"{POD}.runtimeClassName", "runc", "runtimeClassName"),
    ("gpu_pods_select_gpu_nodes", "Deployment/expert-text", f"{POD}.nodeSelector", LARGE_ONLY, "without the label"),
    (
        "gpu_pods_select_gpu_nodes",
        "Deployment/expert-text",
        f"{POD}.affinity.nodeAffinity",
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": NOT_SMALL}},
        "never runs on nodes with hugginggpt.dev/pool=small",
    ),
    (
        "gpu_pods_select_gpu_nodes",
        "Deployment/expert-text",
        "metadata.name",
        "expert-video",
        "may run on nodes with hugginggpt.dev/pool=small",
    ),
    ("gpu_pods_select_gpu_nodes", "Deployment/expert-text", f"{POD}.tolerations", [], "taint"),
    ("pods_are_spread", "Deployment/planner", f"{POD}.topologySpreadConstraints", [], "no topologySpreadConstraints"),
    (
        "pods_are_spread",
        "Deployment/planner",
        f"{POD}.topologySpreadConstraints.0.labelSelector",
        {"matchLabels": {"app.kubernetes.io/part-of": "hugginggpt"}},
        "spread among",
    ),
    ("priority_classes_exist", "Deployment/planner", f"{POD}.priorityClassName", "urgent", "urgent"),
    (
        "dormant_experts_are_declared",
        "Deployment/expert-text",
        f"{SERVER}.env.1.value",
        "false",
        "minReplicaCount of 0",
    ),
    ("dormant_experts_are_declared", "Deployment/expert-text", f"{SERVER}.env.1.value", "false", "maxSurge is 0"),
    (
        "scalers_query_their_own_expert",
        "ScaledObject/expert-text",
        "spec.triggers.0.metadata.query",
        'sum(expert_queue_depth{expert="vision"})',
        "vision",
    ),
    (
        "scalers_query_their_own_expert",
        "ScaledObject/expert-text",
        "spec.triggers.0.metadata.query",
        "sum(other_metric)",
        "no expert",
    ),
    ("scalers_have_a_fallback", "ScaledObject/expert-text", "spec.fallback", REMOVED, "no fallback"),
    ("scalers_have_a_fallback", "ScaledObject/expert-text", "spec.fallback.behavior", REMOVED, "may remove replicas"),
    ("scalers_query_prometheus", "ScaledObject/expert-text", "spec.triggers.0.type", "cpu", "not prometheus"),
    ("scalers_query_prometheus", "ScaledObject/expert-text", f"{TRIGGER}.query", REMOVED, "query is None"),
    ("scalers_query_prometheus", "ScaledObject/expert-text", f"{TRIGGER}.threshold", "five", "threshold is five"),
    ("scalers_query_prometheus", "ScaledObject/expert-text", f"{TRIGGER}.serverAddress", "a:9090", "serverAddress is"),
    ("scalers_query_prometheus", "ScaledObject/expert-text", f"{TRIGGER}.treshold", "5", "has no treshold"),
    ("scalers_have_targets", "ScaledObject/expert-text", "spec.scaleTargetRef.name", "text", "no text"),
    ("database_connections_fit", "Deployment/gateway", "spec.replicas", 8, "may open 110 connections"),
    ("scalers_have_targets", "Deployment/expert-text", "spec.replicas", 2, "undo"),
    # names and selectors
    ("selectors_match_own_pods", "Deployment/planner", "spec.selector.matchLabels", {"a": "b"}, "its own pods"),
    ("selectors_match_own_pods", "Deployment/planner", "spec.selector.matchLabels", {}, "selector matches the pods"),
    ("services_select_pods", "Service/planner", "spec.selector", {"a": "b"}, "selects no pods"),
    ("services_select_pods", "Service/planner", "spec.ports.0.targetPort", "door", "no port door"),
    ("services_select_pods", "Service/planner", "spec.ports.0.port", 80, "no port 80"),
    ("services_select_pods", "Service/planner", "spec.ports.0", {"port": 80, "targetPort": 50051}, "50051"),
    ("grpc_services_are_headless", "Service/planner", "spec.clusterIP", REMOVED, "pins a gRPC channel"),
    ("experts_share_one_service", "Service/experts", "spec.publishNotReadyAddresses", REMOVED, "not ready"),
    ("experts_share_one_service", "Service/experts", "spec.selector", {"a": "b"}, "0 of them select"),
    (
        "referenced_documents_exist",
        "Deployment/planner",
        f"{SERVER}.envFrom.0.configMapRef.name",
        "other",
        "ConfigMap other",
    ),
    (
        "referenced_documents_exist",
        "Deployment/planner",
        f"{POD}.volumes.0",
        {"name": "tmp", "secret": {"secretName": "other"}},
        "Secret other",
    ),
    ("claims_can_be_shared", "PersistentVolumeClaim/models", "spec.accessModes", ["ReadWriteOnce"], "one node"),
    ("recommended_labels_are_set", "Service/planner", "metadata.labels", {}, "part-of"),
    (
        "recommended_labels_are_set",
        "Deployment/planner",
        "spec.template.metadata.labels.app~kubernetes~io/component",
        REMOVED,
        "component",
    ),
    ("documents_share_one_namespace", "Service/planner", "metadata.namespace", "default", "default"),
    # settings
    ("variables_are_read", "Deployment/selector", f"{SERVER}.env.0.name", "SELECTOR_EXPRETS", "SELECTOR_EXPRETS"),
    ("variables_are_read", "Deployment/selector", f"{SERVER}.env.0.name", "GATEWAY_SELECTOR", "GATEWAY_SELECTOR"),
    ("shared_variables_are_read", "ConfigMap/hugginggpt", "data.LOG_FROMAT", "json", "LOG_FROMAT"),
    ("settings_are_valid", "ConfigMap/hugginggpt", "data.LOG_FORMAT", "xml", "LOG_FORMAT"),
    ("modules_are_known", "Deployment/planner", f"{SERVER}.args.0", "services.poet", "services.poet"),
    ("container_ports_match_listeners", "Deployment/planner", f"{SERVER}.ports.0.containerPort", 50055, "50055"),
    ("container_ports_match_listeners", "ConfigMap/hugginggpt", "data.METRICS_LISTEN", "0.0.0.0:9465", "9465"),
    ("servers_listen_on_all_addresses", "ConfigMap/hugginggpt", "data.HEALTH_LISTEN", "127.0.0.1:50052", "127.0.0.1"),
    ("addresses_exist", "Deployment/selector", f"{SERVER}.env.0.value", "dns:///expert:50051", "no such Service"),
    ("addresses_exist", "Deployment/selector", f"{SERVER}.env.0.value", "dns:///experts:50052", "the Service has"),
    ("addresses_exist", "Service/planner", "metadata.name", "planer", "planner is planner:50051"),
    ("addresses_exist", "ConfigMap/hugginggpt", "data.AWS_ENDPOINT_URL", "http://s3:8333", "AWS_ENDPOINT_URL"),
    ("orchestrators_advertise_their_address", "Deployment/orchestrator", f"{SERVER}.env", [], "ORCHESTRATOR_ADDRESS"),
    (
        "gateway_requires_api_keys",
        "ConfigMap/hugginggpt",
        "data.GATEWAY_AUTHENTICATION",
        "none",
        "GATEWAY_AUTHENTICATION is none",
    ),
    ("files_are_mounted", "Deployment/planner", f"{SERVER}.volumeMounts.2.mountPath", "/certificates", "TLS_KEY"),
    ("files_are_mounted", "Deployment/expert-text", f"{SERVER}.volumeMounts.4", REMOVED, "HF_HOME"),
    ("files_are_mounted", "Deployment/planner", f"{POD}.volumes.2.configMap", {"name": "hugginggpt"}, "no ConfigMap"),
    ("connections_are_renewed", "ConfigMap/hugginggpt", "data.CONNECTION_SECONDS", REMOVED, "set CONNECTION_SECONDS"),
    ("experts_run_offline", "ConfigMap/hugginggpt", "data.HF_HUB_OFFLINE", REMOVED, "set HF_HUB_OFFLINE"),
    ("service_links_are_disabled", "Deployment/planner", f"{POD}.enableServiceLinks", REMOVED, "enableServiceLinks"),
    # routes, monitors, certificates
    ("routes_reference_services", "HTTPRoute/gateway", "spec.rules.0.backendRefs.0.port", 80, "no Service gateway"),
    ("routes_reference_services", "HTTPRoute/gateway", "spec.rules.0.backendRefs.0.name", "door", "no Service door"),
    ("routes_have_listeners", "HTTPRoute/gateway", "spec.hostnames", ["other.example.org"], "no listener"),
    ("routes_have_listeners", "HTTPRoute/gateway", "spec.parentRefs.0.sectionName", "https", "no listener"),
    ("listeners_use_tls", "Gateway/hugginggpt", "spec.listeners.0.protocol", "HTTP", "not HTTPS"),
    ("listeners_use_tls", "Gateway/hugginggpt", "spec.listeners.0.tls", REMOVED, "no certificate"),
    ("durations_can_be_parsed", "Certificate/hugginggpt", "spec.duration", "90d", "duration is 90d"),
    (
        "pod_monitors_select_pods_and_ports",
        "PodMonitor/hugginggpt",
        "spec.podMetricsEndpoints.0.port",
        "http",
        "no port http",
    ),
    (
        "pod_monitors_select_pods_and_ports",
        "PodMonitor/hugginggpt",
        "spec.selector.matchLabels",
        {"a": "b"},
        "leaves out",
    ),
    (
        "certificates_include_the_tls_name",
        "Certificate/hugginggpt",
        "spec.dnsNames",
        ["other"],
        "does not include hugginggpt",
    ),
    # network policies
    ("traffic_is_denied_by_default", "NetworkPolicy/deny-all", "spec.policyTypes", ["Ingress"], "none denies"),
    (
        "internal_calls_match_the_table",
        "NetworkPolicy/all-pods",
        "spec",
        {"podSelector": {}, "ingress": [{}], "egress": [{}]},
        "allows gateway → planner:50051",
    ),
    (
        "internal_calls_match_the_table",
        "NetworkPolicy/planner-egress",
        "spec.egress",
        [],
        "blocks planner → selector:50051",
    ),
    (
        "external_ingress_is_limited",
        "NetworkPolicy/gateway-ingress",
        "spec.ingress",
        [],
        "closed to external peers on 8080",
    ),
    ("external_ingress_is_limited", "NetworkPolicy/all-pods", "spec.ingress.0", METRICS_OF_ALL, "read its metrics"),
    ("external_ingress_is_limited", "NetworkPolicy/planner-ingress", "spec.ingress.1", {}, "external peers on 50051"),
    ("pods_may_query_dns", "NetworkPolicy/all-pods", "spec.egress", [], "cannot query DNS"),
    ("external_egress_is_limited", "NetworkPolicy/orchestrator-egress", "spec.egress.1", ANY_ADDRESS, "0.0.0.0/0"),
    ("external_egress_is_limited", "NetworkPolicy/all-pods", "spec.egress.1", ANY_ADDRESS, "Deployment/expert-text"),
    ("external_egress_is_limited", "NetworkPolicy/gateway-egress", "spec.egress.1.ports", REMOVED, "all ports"),
    ("metadata_addresses_are_blocked", "NetworkPolicy/planner-egress", "spec.egress.1", ANY_ADDRESS, "169.254.0.0/16"),
    ("metadata_addresses_are_blocked", "NetworkPolicy/gateway-egress", "spec.egress.1", METADATA, "169.254.169.254/32"),
    ("metadata_addresses_are_blocked", "NetworkPolicy/gateway-egress", "spec.egress.1", ANY_ADDRESS, "10.0.0.0/8"),
    (
        "metadata_addresses_are_blocked",
        "NetworkPolicy/planner-egress",
        "spec.egress.1",
        ANY_ADDRESS,
        "168.63.129.16/32",
    ),
    (
        "identities_reach_their_endpoints",
        "ServiceAccount/planner",
        "metadata.annotations",
        {"iam.gke.io/gcp-service-account": "a@b"},
        "Deployment/planner: cannot get credentials at 169.254.169.252/32 on 988",
    ),
    ("collectors_may_export_traces", "Deployment/planner", NAME, "opentelemetry-collector", "cannot export traces"),
    ("proxies_reach_the_gateway", "NetworkPolicy/proxy", "spec.ingress", [], "no client may call its proxy"),
    ("proxies_reach_the_gateway", "NetworkPolicy/proxy", "spec.egress", [], "the gateway on 8080"),
    ("proxies_reach_the_gateway", "NetworkPolicy/proxy", "spec.podSelector.matchLabels", {"a": "b"}, "call its proxy"),
    (
        "network_policies_select_pods",
        "NetworkPolicy/planner-egress",
        "spec.podSelector.matchLabels",
        {"a": "b"},
        "no pods",
    ),
]


@pytest.fixture(scope="module")
def manifests() -> Manifests:
    return valid_manifests()


@pytest.mark.parametrize("rule", RULES)
def test_valid_manifests_keep_the_rule(rule: str, manifests: Manifests) -> None:
    assert list(RULES[rule](manifests)) == []


@pytest.mark.parametrize(("rule", "document", "path", "value", "message"), VIOLATIONS)
def test_violation_is_reported(rule: str, document: str, path: str, value: object, message: str) -> None:
    found = list(RULES[rule](corrupted_manifests(document, path, value)))
    assert any(message in each for each in found), found


def test_every_rule_has_a_violation() -> None:
    assert {rule for rule, *_ in VIOLATIONS} == set(RULES)


def test_scalers_of_one_expert_query_their_own_models() -> None:
    valid = valid_manifests()
    second = copy.deepcopy(valid.find("ScaledObject", "expert-text"))
    assert second
    second["metadata"]["name"] = "expert-text-2"
    found = list(RULES["scalers_query_their_own_expert"](Manifests((*valid.documents, second))))
    assert len(found) == 2
    assert all("for all models" in each for each in found)
