package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/rnicd/rnicd/internal/daemon/cdi"
	"github.com/rnicd/rnicd/internal/daemon/config"
)

// mpiJob is what the MPI operator's MPIJob of v2beta1 has of ours; its Go module is not needed for
// that.
type mpiJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SlotsPerWorker  *int32 `json:"slotsPerWorker"`
		MPIReplicaSpecs map[string]struct {
			Replicas *int32                 `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"mpiReplicaSpecs"`
	} `json:"spec"`
}

// kustomization is what ours have of kustomize's keys.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string                                   `json:"namespace"`
	Resources       []string                                 `json:"resources"`
	Images          []struct{ Name, NewName, NewTag string } `json:"images"`
	SecretGenerator []struct {
		Name, Behavior string
		Files          []string
	} `json:"secretGenerator"`
	GeneratorOptions struct{ DisableNameSuffixHash bool } `json:"generatorOptions"`
	Patches          []struct{ Path string }              `json:"patches"`
}

// manifest is a document of a file, and its pods.
type manifest struct {
	file, kind string
	object     any
	pods       []corev1.PodSpec
}

// manifests are all that the repository has, decoded strictly into the API's own types.
func manifests(t *testing.T) (all []manifest) {
	t.Helper()
	var files []string
	for _, pattern := range []string{"manifests/*/*.yaml", "examples/*.yaml"} {
		found := must(filepath.Glob(pattern))(t)
		require.NotEmpty(t, found)
		files = append(files, found...)
	}
	for _, file := range files {
		text := must(os.ReadFile(file))(t)
		first, _, _ := strings.Cut(string(text), "\n")
		require.True(t, strings.HasPrefix(first, "# Not run on a real kubelet"),
			"%s says: %s", file, first)
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			all = append(all, decode(t, file, doc))
		}
	}
	return all
}

func decode(t *testing.T, file string, doc []byte) manifest {
	t.Helper()
	var meta metav1.TypeMeta
	require.NoError(t, yaml.Unmarshal(doc, &meta), file)
	m := manifest{file: file, kind: meta.APIVersion + "/" + meta.Kind}
	into := func(object any) {
		m.object = object
		require.NoError(t, yaml.UnmarshalStrict(doc, object), "%s: %s", file, m.kind)
	}
	switch m.kind {
	case "v1/Namespace":
		into(new(corev1.Namespace))
	case "v1/ServiceAccount":
		into(new(corev1.ServiceAccount))
	case "v1/Service":
		into(new(corev1.Service))
	case "apps/v1/DaemonSet":
		d := new(appsv1.DaemonSet)
		into(d)
		m.pods = []corev1.PodSpec{d.Spec.Template.Spec}
	case "batch/v1/Job":
		j := new(batchv1.Job)
		into(j)
		m.pods = []corev1.PodSpec{j.Spec.Template.Spec}
	case "kubeflow.org/v2beta1/MPIJob":
		j := new(mpiJob)
		into(j)
		for _, r := range j.Spec.MPIReplicaSpecs {
			m.pods = append(m.pods, r.Template.Spec)
		}
		require.Len(t, m.pods, 2)
	case "kustomize.config.k8s.io/v1beta1/Kustomization":
		into(new(kustomization))
	default:
		require.Fail(t, "unknown kind", "%s: %q", file, m.kind)
	}
	return m
}

// Every file is of the API's types, and fits the others: volumes and files that are named are
// there, flags are the plugin's, resources are offered.
func TestManifests(t *testing.T) {
	volumes := map[string][]string{} // of a DaemonSet and its patches
	for _, m := range manifests(t) {
		if d, ok := m.object.(*appsv1.DaemonSet); ok {
			for _, v := range d.Spec.Template.Spec.Volumes {
				volumes[d.Name] = append(volumes[d.Name], v.Name)
			}
		}
	}
	for _, m := range manifests(t) {
		if k, ok := m.object.(*kustomization); ok {
			checkKustomization(t, m.file, k)
		}
		for _, pod := range m.pods {
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				checkContainer(t, m, &c)
				if d, ok := m.object.(*appsv1.DaemonSet); ok {
					for _, v := range c.VolumeMounts {
						require.Contains(t, volumes[d.Name], v.Name, m.file)
					}
				}
			}
		}
	}
}

func checkKustomization(t *testing.T, file string, k *kustomization) {
	t.Helper()
	paths := k.Resources
	for _, p := range k.Patches {
		paths = append(paths, p.Path)
	}
	for _, s := range k.SecretGenerator {
		paths = append(paths, s.Files...)
	}
	for _, p := range paths {
		_, err := os.Stat(filepath.Join(filepath.Dir(file), p))
		require.NoError(t, err, file)
	}
}

func checkContainer(t *testing.T, m manifest, c *corev1.Container) {
	t.Helper()
	if c.Name == "plugin" {
		_, err := parse(c.Args, io.Discard)
		require.NoError(t, err, m.file)
	}
	example := strings.HasPrefix(m.file, "examples/")
	for name, n := range c.Resources.Limits {
		if example {
			require.Contains(t, []string{"rnicd.io/sockets", "rnicd.io/memif"}, string(name), m.file)
			require.EqualValues(t, 1, n.Value(), m.file)
		}
	}
	if s := c.SecurityContext; !example && s != nil && s.Privileged != nil {
		require.False(t, *s.Privileged, m.file)
	}
}

// Switches of the manifests are configurations, and all their programs can be containers.
func TestSwitchesOfManifests(t *testing.T) {
	files := must(filepath.Glob("manifests/*/*.toml"))(t)
	require.Len(t, files, 3)
	for _, file := range files {
		text := must(os.ReadFile(file))(t)
		s := must(config.ParseSwitch(file, text, cdi.Drivers()))(t)
		open, secret, err := cdi.Host{Libraries: "/lib"}.Programs(s)
		require.NoError(t, err)
		require.Nil(t, open, "each program has a secret")
		require.Len(t, secret.Devices, 2)
	}
}
